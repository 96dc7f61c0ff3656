// An operator without a token: the live overview, preferences, and each action once.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  addTask, badge, button, choose, confirm, input, link, open, post, says, withPage,
} from "./browser.mjs";

const { url, content } = input;

async function seesTheStateLive(page) {
  await page.goto(url);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByText("Nothing is wrong.").waitFor();
  await page.locator("canvas").first().waitFor();
  const files = await page.evaluate(() =>
    performance.getEntriesByType("resource").filter(({ initiatorType }) =>
      ["link", "script"].includes(initiatorType),
    ).length,
  );
  assert(files <= 3, `${files} files before the first paint`);
}

async function switchesPreferences(page) {
  const attribute = (name) => page.evaluate((name) => document.documentElement[name], name);
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  await choose(page, "Theme", "dark");
  assert.equal(await theme(), "dark");
  await choose(page, "Language", "zh");
  await page.getByRole("heading", { name: "总览" }).waitFor();
  assert.equal(await attribute("lang"), "zh-CN");
  await page.reload();
  await page.getByRole("heading", { name: "总览" }).waitFor();
  assert.equal(await theme(), "dark");
  await choose(page, "语言", "en");
  await choose(page, "Times", "utc");
  await choose(page, "Theme", "light");
}

async function followsATask(page) {
  await open(page, "add");
  await page.getByLabel("Content").fill("[]");
  await page.getByText("The content must be a JSON object.").waitFor();
  await page.getByLabel("Content").fill(content);
  await page.getByLabel("Delay", { exact: true }).fill("1 hour");
  await page.getByText("The delay must be a whole number").waitFor();
  await page.getByLabel("Attempts at most").fill("0");
  await page.getByText("The attempts must be a whole number").waitFor();
  await addTask(page, { topic: "shop:cart.v1", delay: "1h", content });
  await page.getByText("The page follows the task until it ends.").waitFor();
  await button(page, "Run now").click();
  await confirm(page, "Run now");
  await page.getByText("The task has ended.").waitFor();
  await badge(page, "delivered").waitFor();
  const shown = await page.locator("pre[data-content]").textContent();
  assert.equal(shown, content);
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert((await page.locator(".mark").count()) >= 2, "marks of direction are visible");
}

async function pausesAndResumesATopic(page) {
  await open(page, "topics");
  await page.getByRole("searchbox").fill("ORD");
  await page.getByText("1 of 1 are shown.").waitFor();
  // The list is read every few seconds. The dialog stays if an answer comes while it is open.
  const list = "**/delay/topic/list";
  let release;
  const held = new Promise((done) => (release = done));
  await page.route(list, (route) => held.then(() => route.continue()));
  await page.waitForRequest(list);
  await button(page, "Pause orders").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Pause orders?").waitFor();
  const answered = page.waitForResponse(list);
  release();
  await answered;
  await page.unroute(list);
  await dialog.getByText("Pause orders?").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  // The focus returns to the button that opened the dialog.
  await page.waitForFunction(
    () => document.activeElement?.getAttribute("aria-label") === "Pause orders",
  );
  await page.keyboard.press("Enter");
  await dialog.getByText("Pause orders?").waitFor();
  // The browser reports later that it closed the dialog: the same question may be open again.
  await page.evaluate(() => {
    const closing = document.querySelector("dialog");
    window.reported = new Promise((done) => closing.addEventListener("close", done));
    closing.close();
    document.querySelector('[aria-label="Pause orders"]').click();
  });
  await page.evaluate(() => window.reported);
  await confirm(page, "Pause");
  await says(page, "orders is paused.");
  await badge(page, "paused").waitFor();
  await open(page, "audit");
  await page.getByText("topic/pause").waitFor();
  await open(page, "");
  await page.getByText("1 topic is paused.").waitFor();

  const missed = '{"sn": "message.call", "url": "/missed"}';
  await addTask(page, { topic: "orders", delay: "0s", content: missed });
  const late = await idOf(page);
  await link(page, "orders").click();
  await button(page, "Resume").click();
  await dialog.getByText("1 task is due and waiting.").waitFor();
  await dialog.getByLabel("are skipped, and expire").check();
  await confirm(page, "Resume");
  await says(page, "orders is resumed.");
  await open(page, `task/orders/${late}`);
  await badge(page, "expired").waitFor();
}

const idOf = async (page) => (await page.evaluate(() => location.hash)).split("/").at(-1);

async function movesRunsAndCancelsTasks(page) {
  const due = page.locator(".field", { hasText: "Due" }).locator("time").first();
  await addTask(page, { topic: "orders", delay: "1h", content: '{"a": 1}' });
  const before = await due.textContent();
  await button(page, "Move").click();
  await page.getByRole("dialog").getByLabel("Delay", { exact: true }).fill("3h");
  await confirm(page, "Move");
  const moved = await idOf(page);
  await says(page, `Task ${moved} of orders is due at`);
  assert.notEqual(await due.textContent(), before);
  await button(page, "Cancel the task").click();
  await confirm(page, "Cancel the task");
  await says(page, `Task ${moved} of orders is cancelled.`);
  await badge(page, "cancelled").waitFor();

  const fires = '{"sn": "message.call", "url": "/now"}';
  await addTask(page, { topic: "orders", delay: "1h", content: fires });
  await button(page, "Run now").click();
  await confirm(page, "Run now");
  await badge(page, "delivered").waitFor();
}

/** A question about a task does not stay when another task is shown. */
async function leavesAQuestion(page) {
  const ids = [];
  for (const content of ['{"a": 2}', '{"a": 3}']) {
    await addTask(page, { topic: "left", delay: "1h", content });
    ids.push(await idOf(page));
  }
  const [first, second] = ids;
  await open(page, `task/left/${second}`);
  await open(page, `task/left/${first}`);
  await button(page, "Cancel the task").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(`Cancel task ${first} of left?`).waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: `Task ${second}` }).waitFor();
  await dialog.waitFor({ state: "detached" });
  for (const id of ids) {
    await open(page, `task/left/${id}`);
    await badge(page, "scheduled").waitFor();
    await button(page, "Cancel the task").click();
    await confirm(page, "Cancel the task");
    // The button is gone.
    await page.waitForFunction(() => document.activeElement?.matches("main h1"));
  }
}

/** The figures are those of the call, and the tasks that were added are among them. */
async function readsTheForecast(page) {
  for (const delay of ["90m", "91m", "5h"]) {
    const task = { topic: "coming", delay, content: { a: 1 } };
    await post(page, "delay/task/add", JSON.stringify(task));
  }
  const answer = await post(page, "delay/forecast", '{"match": "coming"}');
  const { figures } = answer.services.find(({ sn }) => sn === "@pull");
  assert.deepEqual(figures.buckets.slice(0, 6), [0, 2, 0, 0, 1, 0], JSON.stringify(answer));
  const all = await post(page, "delay/forecast", "{}");
  await open(page, "forecast");
  await page.getByText("No task for a service is overdue.").waitFor();
  await page.locator("canvas").waitFor();
  const pulled = all.services.find(({ sn }) => sn === "@pull").figures;
  const within = pulled.buckets.reduce((sum, count) => sum + count, pulled.overdue);
  const row = page.getByRole("row", { name: "pulled by consumers" });
  const cells = await row.getByRole("cell").allTextContents();
  assert.deepEqual(cells.slice(1, 4), [pulled.overdue, within, pulled.rest].map(String));
  const buckets = page.getByRole("group", { name: "By due time" }).locator("tbody tr");
  assert.equal(await buckets.count(), 24);
  const sums = await buckets.locator("td:nth-child(2)").allTextContents();
  assert.deepEqual(sums, all.total.buckets.map(String));
  await page.getByLabel("The next").selectOption("hour");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length < 24);
}

/** The command that is copied adds the same task, with its options, but without its key. */
async function copiesATask(page) {
  const odd = `{"sn": "message.call", "url": "/it's", "big": 12345678901234567890, "x": "$(id)"}`;
  const options = { max_attempts: 7, headers: { "x-shop": "it's" } };
  const given = { topic: "copied", delay: "1h", key: "cart", ...options, content: odd };
  const { task_id } = await post(page, "delay/task/add", JSON.stringify(given));
  await open(page, `task/copied/${task_id}`);
  // The word stands there for two seconds, so the page looks for it before the click.
  await Promise.all([button(page, "Copied").waitFor(), button(page, "Copy as curl").click()]);
  await open(page, "add");
  await page.getByLabel("Content").fill("");
  await page.getByLabel("Content").press("Control+V");
  const command = await page.getByLabel("Content").inputValue();
  const answer = JSON.parse(execFileSync("sh", ["-c", command], { encoding: "utf8" }));
  assert.equal(answer.dm_error, 0, JSON.stringify(answer));
  await open(page, `task/copied/${answer.task_id}`);
  assert.equal(await page.locator("pre[data-content]").textContent(), odd);
  const get = (id) =>
    post(page, "delay/task/get", JSON.stringify({ topic: "copied", task_id: id }));
  const [before, after] = [await get(task_id), await get(answer.task_id)];
  assert.equal(before.task.state, "scheduled", "the copy does not replace it");
  assert.equal(before.task.key, "cart");
  assert.equal(after.task.key ?? null, null);
  assert.deepEqual(after.task.options, before.task.options);
  assert.equal(after.task.options.headers["x-shop"], "it's");
}

/** The receiver refuses `/dies` for good. */
async function replaysAndPurgesDeadTasks(page) {
  const dies = '{"sn": "message.call", "url": "/dies"}';
  await addTask(page, { topic: "mortal", delay: "0s", content: dies });
  await badge(page, "dead").waitFor();
  await button(page, "Replay").click();
  await confirm(page, "Replay");
  await says(page, `Task ${await idOf(page)} of mortal is replayed.`);
  await open(page, "tasks/mortal?state=dead");
  await page.getByRole("row").nth(1).waitFor();
  await addTask(page, { topic: "mortal", delay: "0s", content: dies });
  await badge(page, "dead").waitFor();
  await button(page, "Cancel the task").click();
  await confirm(page, "Cancel the task");
  await badge(page, "cancelled").waitFor();

  await open(page, "dead/mortal");
  const count = page.getByRole("row").nth(1).getByRole("cell").nth(2);
  assert.equal(await count.textContent(), "1");
  await button(page, "Replay all").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Dry run: 1 task would be replayed.").waitFor();
  await dialog.getByLabel("Rate").fill("fast");
  await dialog.getByText("The rate must be").waitFor();
  await dialog.getByLabel("Rate").fill("10/s");
  await confirm(page, "Replay");
  await says(page, "1 task was replayed.");
  await open(page, "tasks/mortal?state=dead");
  await page.getByRole("row").nth(1).getByRole("link").click();
  await badge(page, "dead").waitFor();
  // The log has an attempt, so the bar has a part for it.
  await page.locator(".segments li", { hasText: "attempt 1" }).first().waitFor();

  await open(page, "dead");
  await page.getByRole("button", { name: "Purge mortal, 410" }).click();
  await dialog.getByText("Dry run: 1 task would be deleted.").waitFor();
  await confirm(page, "Purge", "mortal");
  await says(page, "1 task was deleted.");
}

async function holdsADestination(page) {
  await open(page, "destinations");
  await button(page, "Hold message.call").click();
  await confirm(page, "Hold");
  await badge(page, "held").waitFor();
  await addTask(page, {
    topic: "held",
    delay: "0s",
    content: '{"sn": "message.call", "url": "/held"}',
  });
  await open(page, "");
  await page.getByText("message.call is held by an operator. ").waitFor();
  await open(page, "destinations");
  await button(page, "Release message.call").click();
  await confirm(page, "Release");
  await badge(page, "ready").waitFor();
}

/** One failed call opens the breaker of `fragile` for an hour, and one good probe closes it. */
async function probesADestination(page) {
  const calls = (url) => ({
    topic: "fragile", delay: "0s", content: `{"sn": "fragile", "url": "${url}"}`, attempts: "1",
  });
  // A call of another service, whose lateness the page shows.
  const other = '{"sn": "message.call", "url": "/other"}';
  await addTask(page, { topic: "other", delay: "0s", content: other });
  await badge(page, "delivered").waitFor();
  await addTask(page, calls("/fails"));
  await badge(page, "dead").waitFor();
  await open(page, "");
  await page.getByText("fragile fails, so its circuit breaker is open.").waitFor();
  await page.getByText(/Last error, .* ago: 500/).waitFor();
  await open(page, "destinations");
  const row = page.locator("main tbody tr").filter({ has: link(page, "fragile") });
  await row.waitFor();
  assert.deepEqual(await row.locator(".badge").allTextContents(), ["failing"]);
  await link(page, "fragile").click();
  await page.getByRole("heading", { name: "Destination fragile" }).waitFor();
  const field = (name) => page.locator(".field", { hasText: name }).locator("dd").first();
  const changes = page.locator("tbody tr .badge");
  await badge(page, "open").waitFor();
  await page.getByText(/The other services are called (on time|late, too)/).waitFor();
  assert.equal(await field("Failed").textContent(), "1 (100%)");
  assert.match(await field("Last error").textContent(), /^500/);
  assert.deepEqual(await changes.allTextContents(), ["open"]);
  await button(page, "Probe now fragile").click();
  await confirm(page, "Probe now");
  await says(page, "The circuit breaker of fragile is half-open.");
  await page.locator("tbody tr").nth(1).waitFor();
  assert.deepEqual(await changes.allTextContents(), ["half-open", "open"]);
  assert.equal(await button(page, "Probe now fragile").count(), 0);

  await addTask(page, calls("/works"));
  await badge(page, "delivered").waitFor();
  await open(page, "destinations/fragile");
  await page.locator("tbody tr").nth(2).waitFor();
  assert.deepEqual(await changes.allTextContents(), ["closed", "half-open", "open"]);
  assert.equal(await field("Failed").textContent(), "1 (50%)");
  await open(page, "destinations/nowhere");
  await page.getByRole("alert").waitFor();
}

async function filtersTasksInTheAddress(page) {
  await open(page, "topics/orders");
  await link(page, "cancelled 1").click();
  await page.getByRole("row").nth(1).waitFor();
  assert.equal(await page.evaluate(() => location.hash), "#/tasks/orders?state=cancelled");
  await page.reload();
  await page.getByRole("row").nth(1).waitFor();
  assert.equal(await page.getByRole("row").count(), 2);
  await page.getByLabel("State").selectOption("scheduled");
  await page.getByLabel("To (UTC)").fill("2020-01-01T00:00:00");
  await button(page, "Show the tasks").click();
  await page.getByText("There are no such tasks.").waitFor();
  assert(await page.evaluate(() => location.hash.includes("to=1577836800")));
  await page.goBack();
  await page.getByRole("row").nth(1).waitFor();
}

const hash = (page) => page.evaluate(() => location.hash);
const rows = (page) => page.locator("tbody tr");

async function search(page, by, text) {
  await choose(page, "Search in", by);
  await page.getByRole("searchbox").fill(text);
  await button(page, "Show the tasks").click();
}

/** Four tasks: one that is pulled, with a key, and three of a service, which are due later. */
async function searchesTasks(page) {
  const add = (task) => post(page, "delay/task/add", JSON.stringify({ topic: "found", ...task }));
  const { task_id } = await add({ delay: "1h", key: "cart-7", content: { x: "Needle" } });
  const id = String(task_id);
  const later = { content: { sn: "message.call", url: "/later" } };
  const once = await add({ delay: "2h", idempotency_key: "once-7", ...later });
  for (const delay of ["3h", "4h"]) await add({ delay, ...later });
  await open(page, "tasks");
  for (const [by, text, found] of [
    ["id", id, id],
    ["key", "cart-7", id],
    ["idempotency_key", "once-7", String(once.task_id)],
  ]) {
    await search(page, by, text);
    await page.waitForFunction((by) => location.hash.includes(`by=${by}`), by);
    // Before the answer, the tasks of the fullest topic may be there.
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await link(page, found).waitFor();
    assert.equal(await hash(page), `#/tasks?by=${by}&q=${text}`);
  }
  await search(page, "key", "no such key");
  await page.getByText(/There are no such tasks. [0-9]+ topics were looked at./).waitFor();
  await search(page, "sn", "message.call");
  await page.getByText("Name a topic.").waitFor();

  await page.getByRole("combobox", { name: "Topic" }).fill("found");
  await search(page, "text", "Needle");
  await page.getByText("4 tasks were looked at.").waitFor();
  await link(page, id).waitFor();
  assert.equal(await rows(page).count(), 1);
  await open(page, "tasks/found");
  await rows(page).nth(3).waitFor();
  assert.equal(await rows(page).last().getByRole("link").textContent(), id, "the latest first");
  await choose(page, "Order", "oldest");
  await button(page, "Show the tasks").click();
  await page.waitForFunction(() => location.hash.includes("order=oldest"));
  await rows(page).nth(3).waitFor();
  assert.equal(await rows(page).first().getByRole("link").textContent(), id);

  await open(page, "tasks/fragile?state=dead");
  const outcome = await rows(page).first().getByRole("cell").nth(6).textContent();
  await search(page, "outcome", outcome.slice(0, -1));
  await page.getByText("There are no such tasks.").waitFor();
  await search(page, "outcome", outcome);
  await rows(page).first().waitFor();
  await page.getByText("1 task was looked at.").waitFor();
}

async function movesAndCancelsAllMatching(page) {
  await open(page, "tasks/found?by=sn&q=message.call");
  await rows(page).nth(2).waitFor();
  assert.equal(await rows(page).count(), 3);
  const dialog = page.getByRole("dialog");
  await button(page, "Move all matching").click();
  await dialog.getByText("Dry run: 3 tasks would be moved. 4 tasks were looked at.").waitFor();
  await dialog.getByLabel("Delay", { exact: true }).fill("9h");
  await confirm(page, "Move all matching");
  await says(page, "3 tasks were moved.");
  // The list shows one due time three times.
  await page.waitForFunction(() => {
    const times = [...document.querySelectorAll("tbody tr td:nth-child(3)")];
    return times.length === 3 && new Set(times.map((time) => time.textContent)).size === 1;
  });

  await button(page, "Cancel all matching").click();
  await dialog.getByText("Dry run: 3 tasks would be cancelled.").waitFor();
  await confirm(page, "Cancel all matching", "found");
  await says(page, "3 tasks were cancelled.");
  await page.getByText("There are no such tasks.").waitFor();
  await open(page, "tasks/found");
  await rows(page).first().waitFor();
  assert.equal(await rows(page).count(), 1);
  await open(page, "tasks/found?by=text&q=Needle");
  await rows(page).first().waitFor();
  assert.equal(await button(page, "Cancel all matching").count(), 0, "it cannot select by a text");
}

async function deletesATopic(page) {
  await open(page, "topics/copied");
  await button(page, "Delete the topic").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox").fill("copied");
  await button(dialog, "Delete the topic").click();
  await dialog.getByRole("alert").waitFor();
  await page.keyboard.press("Escape");
  await button(page, "Delete all tasks").click();
  await confirm(page, "Delete all tasks", "copied");
  await says(page, "2 tasks were deleted.");
  await button(page, "Delete the topic").click();
  await confirm(page, "Delete the topic", "copied");
  await says(page, "copied is deleted.");
  await page.getByRole("heading", { name: "Topics" }).waitFor();
  assert.equal(await link(page, "copied").count(), 0);
}

/** While a tab is hidden it has no stream. */
async function closesTheStreamWhileHidden(page) {
  const setHidden = (isHidden) =>
    page.evaluate((isHidden) => {
      Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, isHidden);
  const ended = new Promise((done) => {
    for (const event of ["requestfailed", "requestfinished"]) {
      page.on(event, (request) => request.url().endsWith("/delay/live") && done());
    }
  });
  await setHidden(true);
  await page.getByText("Paused while hidden").waitFor();
  await ended;
  await setHidden(false);
  await page.getByText("Live", { exact: true }).waitFor();
}

await withPage(
  async (page) => {
    await seesTheStateLive(page);
    await switchesPreferences(page);
    await followsATask(page);
    await pausesAndResumesATopic(page);
    await movesRunsAndCancelsTasks(page);
    await leavesAQuestion(page);
    await readsTheForecast(page);
    await copiesATask(page);
    await replaysAndPurgesDeadTasks(page);
    await holdsADestination(page);
    await probesADestination(page);
    await filtersTasksInTheAddress(page);
    await searchesTasks(page);
    await movesAndCancelsAllMatching(page);
    await deletesATopic(page);
    await closesTheStreamWhileHidden(page);
  },
  // The delete of a topic that has tasks, and a destination that does not exist.
  { expected: ["409 (Conflict)", "404 (Not Found)"] },
);
