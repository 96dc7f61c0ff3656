// Adds a task, once, whatever happens on the way: node producer.mjs ORDER   (Node 18 or later)
//
// DELAYD_SERVER is the address of delayd (http://127.0.0.1:7799 by default). DELAYD_TOKEN is an
// access token with the scope "produce", where delayd has tokens.
import { setTimeout as sleep } from "node:timers/promises";

const url = process.env.DELAYD_SERVER ?? "http://127.0.0.1:7799";
const token = process.env.DELAYD_TOKEN;
const attemptTimeout = 5_000; // milliseconds for one request
const totalTimeout = 60_000; // milliseconds for all attempts together

// delayd refuses the task. Sending it again does not help.
class Refused extends Error {}

// Sends one request. Returns status, Retry-After in milliseconds, and answer.
async function post(path, body) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const signal = AbortSignal.timeout(attemptTimeout);
  const response = await fetch(url + path, { method: "POST", headers, body, signal });
  const retryAfter = 1000 * Number(response.headers.get("retry-after") ?? 0);
  return { status: response.status, retryAfter, answer: await response.json() };
}

// Adds the task. Repeats the request until it is confirmed, and returns the answer.
async function add(task) {
  // Without a key, a repeated add may store the task twice.
  if (!task.idempotency_key) throw new Error("the task has no idempotency_key");
  // The body is built once: a repeated add must ask for exactly the same.
  const body = JSON.stringify(task);
  const deadline = performance.now() + totalTimeout;
  for (let backoff = 100; ; backoff = Math.min(2 * backoff, 5_000)) {
    let why;
    let pause = 0;
    try {
      const { status, retryAfter, answer } = await post("/delay/task/add", body);
      if (status === 200) return answer;
      // 400: a wrong field; 401, 403: the token; ...
      if (status < 500 && status !== 429) throw new Refused(answer.error_msg);
      pause = retryAfter;
      why = answer.error_msg;
    } catch (error) {
      if (error instanceof Refused) throw error;
      why = error.message; // no answer
    }
    // The jitter keeps clients that failed together from coming back together.
    pause = Math.max(pause, backoff * (0.5 + Math.random() / 2));
    // The task may be stored or not.
    if (performance.now() + pause > deadline) throw new Error(`not confirmed: ${why}`);
    console.error("trying again:", why);
    await sleep(pause);
  }
}

const order = Number(process.argv[2]);
const answer = await add({
  topic: "order.cancel",
  idempotency_key: `order-${order}`, // from your data, so that a restarted producer repeats it
  delay: "30m",
  mode: "pull",
  content: { order },
});
console.log("task", answer.task_id, answer.duplicate ? "was known" : "is new");
