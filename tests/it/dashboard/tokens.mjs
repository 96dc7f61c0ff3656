// A service with tokens: the page asks for one, says if it is unknown, and shows what it may do.
import assert from "node:assert/strict";
import { button, input, isAccessible, link, open, withPage } from "./browser.mjs";

const useToken = async (page, token, isKept) => {
  await page.getByLabel("Access token", { exact: true }).fill(token);
  if (isKept) await page.getByRole("checkbox").check();
  await button(page, "Use the token").click();
};

const hasPage = async (page, name) => (await link(page, name).count()) === 1;

/** What the page does not offer, and the service refuses. */
async function changesNothing(page, token) {
  const { task } = input;
  const pages = ["topics", "topics/orders", `task/orders/${task}`, "dead", "destinations"];
  pages.push("destinations/message.call", "schedules/orders", "schedules/orders/daily");
  for (const name of [...pages, "dead/orders", "tasks/orders?state=dead"]) {
    await open(page, name);
    const offered = page.locator("main button:not(.sort, [type=submit])");
    const names = await offered.allTextContents();
    assert.deepEqual(names.filter((name) => name !== "Load again"), [], name);
  }
  for (const name of [`task/orders/${task}`, "schedules/orders/daily"]) {
    await open(page, name);
    await page.getByText("Your token may not read the content.").waitFor();
  }
  await open(page, "tasks/orders?state=dead");
  const fields = await page.getByLabel("Search in").locator("option").allTextContents();
  assert(!fields.some((name) => /outcome|content/.test(name)), "fields that it may not read");
  await open(page, "dead");
  await page.getByText("Your token may not read the cause.").waitFor();
  const id = { topic: "orders", task_id: task };
  const calls = {
    "task/add": { topic: "orders", delay: 0, content: {} },
    "task/cancel": id,
    "task/update": { ...id, delay: 0 },
    "task/cancel_many": { topic: "orders", state: "dead", all: true },
    "task/update_many": { topic: "orders", timing_moment: 0, all: true },
    "task/search": { topic: "orders", state: "dead", text: "x" },
    "task/list": { topic: "orders", state: "dead", outcome: "nacked" },
    "dead/replay": { topic: "orders", all: true },
    "dead/purge": { topic: "orders", all: true },
    "topic/set": { topic: "orders", quota: 9 },
    "topic/pause": { topic: "orders" },
    "topic/resume": { topic: "orders" },
    "topic/purge": { topic: "orders", confirm: "orders" },
    "topic/delete": { topic: "orders" },
    "schedule/set": { topic: "orders", schedule: "x", every: "1h", content: {} },
    "schedule/pause": { topic: "orders", schedule: "daily" },
    "schedule/resume": { topic: "orders", schedule: "daily" },
    "schedule/delete": { topic: "orders", schedule: "daily" },
    "schedule/run": { topic: "orders", schedule: "daily" },
    "destination/hold": { sn: "message.call" },
    "destination/release": { sn: "message.call" },
    "destination/probe": { sn: "message.call" },
  };
  for (const [path, body] of Object.entries(calls)) {
    const status = await page.evaluate(
      async ([path, body, token]) => {
        const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
        const answer = await fetch(`delay/${path}`, { method: "POST", headers, body });
        return answer.status;
      },
      [path, JSON.stringify(body), token],
    );
    assert.equal(status, 403, path);
  }
}

/** A token that may add tasks, but not read headers, gets no command without them. */
async function hidesTheCommand(page) {
  const id = await page.evaluate(async () => {
    const headers = { authorization: "Bearer adder", "content-type": "application/json" };
    const task = { topic: "hidden", delay: "1h", content: {}, headers: { "x-secret": "1" } };
    const body = JSON.stringify(task);
    const answer = await fetch("delay/task/add", { method: "POST", headers, body });
    return (await answer.json()).task_id;
  });
  await open(page, `task/hidden/${id}`);
  await page.getByText("your token may not read its headers").waitFor();
  assert.equal(await button(page, "Copy as curl").count(), 0);
}

const kept = (page) => page.evaluate(() => JSON.stringify([sessionStorage, localStorage]));

await withPage(
  async (page) => {
    await page.goto(input.url);
    await page.getByText("This service needs an access token").waitFor();
    await isAccessible(page, "the question for the token");
    await useToken(page, "wrong", false);
    await page.getByText("The service does not know this token.").waitFor();
    await useToken(page, "viewer", false);
    await page.getByText("Live", { exact: true }).waitFor();
    assert(await hasPage(page, "Overview"));
    assert(!(await hasPage(page, "Add a task")));
    assert(!(await kept(page)).includes("viewer"), "the token is only in memory");
    assert.equal(await page.evaluate(() => document.cookie), "");
    await changesNothing(page, "viewer");

    await page.reload();
    await useToken(page, "viewer", true);
    await page.getByText("Live", { exact: true }).waitFor();
    await page.reload();
    await page.getByText("Live", { exact: true }).waitFor();
    await open(page, "system");
    await button(page, "Forget the token").click();
    await page.getByText("This service needs an access token").waitFor();
    assert(!(await kept(page)).includes("viewer"), "the token is forgotten");

    await useToken(page, "adder", false);
    await link(page, "Add a task").waitFor();
    assert(!(await hasPage(page, "Overview")));
    await hidesTheCommand(page);
    await page.evaluate(() => (location.hash = "#/audit"));
    await page.getByText("covers all topics").waitFor();
  },
  // Chromium reports each refused call in the console.
  { expected: ["401 (Unauthorized)", "403 (Forbidden)"] },
);
