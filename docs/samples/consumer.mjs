// Pulls due tasks under a lease, works and acknowledges: node consumer.mjs TOPIC (Node 18 or later)
//
// Start as many as you like: each task goes to one of them. SIGTERM ends it after the task in work.
// DELAYD_SERVER is the address of delayd (http://127.0.0.1:7799 by default). DELAYD_TOKEN is an
// access token with the scope "consume", where delayd has tokens.
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.DELAYD_SERVER ?? "http://127.0.0.1:7799";
const token = process.env.DELAYD_TOKEN;
const lease = Number(process.env.LEASE ?? 30); // seconds that a task is ours, see extended()
const wait = 5; // seconds that a pull waits for a task, and at most 30

// delayd refuses the call, such as 409: the lease is lost. Repeating it does not help.
class Refused extends Error {}

// Makes one call. Returns the answer; throws if there is none, or only "try again".
async function call(path, request) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const signal = AbortSignal.timeout((wait + 10) * 1000);
  const body = JSON.stringify(request);
  const response = await fetch(url + path, { method: "POST", headers, body, signal });
  const answer = await response.json();
  if (response.ok) return answer;
  if (response.status < 500 && response.status !== 429) throw new Refused(answer.error_msg);
  throw new Error(answer.error_msg);
}

// Repeats a call until it is answered. Acks and nacks can be repeated without harm.
async function callUntilAnswered(path, request) {
  for (;;) {
    try {
      return await call(path, request);
    } catch (error) {
      if (error instanceof Refused) throw error;
      console.error("trying again:", path, error.message);
      await sleep(1000);
    }
  }
}

// Extends the lease while the work runs, three times as often as needed.
async function extended(task, work) {
  const timer = setInterval(() => {
    call("/delay/task/extend", { ...task, lease }).catch((error) => {
      console.error("not extended:", error.message);
      if (error instanceof Refused) clearInterval(timer); // another consumer has the task by now
    });
  }, (lease * 1000) / 3);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
}

// Your work. It may be done twice: after a crash, or when the lease was lost.
async function work(content) {
  const { order } = JSON.parse(content);
  await sleep(1000 * Number(process.env.WORK ?? 0));
  console.log("did", order);
}

const topic = process.argv[2];
let stopping = false;
process.on("SIGTERM", () => (stopping = true));
while (!stopping) {
  const pulled = await callUntilAnswered("/delay/task/pull", { topic, lease, wait });
  if (pulled.task_id === null) continue; // nothing was due
  const task = { topic, task_id: pulled.task_id, receipt: pulled.receipt };
  let settle = "ack";
  try {
    await extended(task, () => work(pulled.content));
  } catch (error) {
    console.error("failed:", task.task_id, error.message);
    settle = "nack"; // the task comes again after its backoff
  }
  try {
    await callUntilAnswered(`/delay/task/${settle}`, task);
  } catch (error) {
    console.error(`${settle} refused:`, task.task_id, error.message);
  }
}
