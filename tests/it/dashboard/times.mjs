// Due times as text in each form that sets one, with the service's refusals at their fields; and
// the parts of a task's time after a failure.
import assert from "node:assert/strict";
import {
  badge, button, choose, confirm, input, open, post, says, withPage,
} from "./browser.mjs";

/** Fills the fields of a time as text. `place` is the page, or a dialog. */
async function writes(place, at, zone) {
  await place.getByLabel("at a time, as text").check();
  await place.getByLabel("Time as text").fill(at);
  await place.getByLabel("Time zone").fill(zone);
}

/** The service refused a field: its sentence stands there, and the field has the focus. */
async function isRefused(page, id, sentence) {
  await page.locator(`#${id}-help`, { hasText: sentence }).waitFor();
  assert.equal(await page.locator(`#${id}`).getAttribute("aria-invalid"), "true");
  await page.waitForFunction((id) => document.activeElement?.id === id, id);
  assert.equal(await page.locator(".notice.bad").count(), 0, "it is said once");
}

const due = (page) => page.locator(".field", { hasText: "Due" }).locator("time").first();

async function addsATaskAtALocalTime(page) {
  await open(page, "add");
  await page.getByRole("textbox", { name: "Topic" }).fill("timed");
  await page.getByLabel("Content").fill('{"a": 1}');
  await page.getByLabel("at a time, as text").check();
  await button(page, "Add the task").click();
  await page.getByText("The time is missing.").waitFor();
  await writes(page, "2035-11-23 20:00", "");
  await button(page, "Add the task").click();
  await isRefused(page, "add-at", "expected a local time to have a zone");
  await page.getByLabel("Time zone").fill("Asia/Shangai");
  // The sentence goes with the next change.
  await page.locator("#add-at-help", { hasText: "in the time zone below" }).waitFor();
  await button(page, "Add the task").click();
  await isRefused(page, "add-zone", "Asia/Shangai");
  await page.getByLabel("Time zone").fill("Asia/Shanghai");
  await button(page, "Add the task").click();
  await page.getByText("webhook-id").waitFor();
  assert.equal(await due(page).textContent(), "2035-11-23 12:00:00 UTC");
  return (await page.evaluate(() => location.hash)).split("/").at(-1);
}

async function movesATaskToALocalTime(page, task) {
  const dialog = page.getByRole("dialog");
  await button(page, "Move").click();
  await writes(dialog, "2035-11-24T20:00:00+08:00", "Europe/Berlin");
  await button(dialog, "Move").click();
  await isRefused(page, "move-at", "expected the offset of Europe/Berlin");
  await dialog.getByLabel("Time zone").fill("");
  await confirm(page, "Move");
  await says(page, `Task ${task} of timed is due at 2035-11-24 12:00:00 UTC.`);
  // A delay that the service finds too long.
  await button(page, "Move").click();
  await dialog.getByLabel("Delay", { exact: true }).fill("99999d");
  await button(dialog, "Move").click();
  await isRefused(page, "move-delay", "The service says:");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
}

async function movesSelectedTasksToALocalTime(page, task) {
  const dialog = page.getByRole("dialog");
  await open(page, "tasks/timed");
  await page.getByLabel(`Select task ${task}`).check();
  await button(page, "Move the selected tasks").click();
  await dialog.getByText("Dry run: 1 task would be moved.").waitFor();
  await dialog.getByLabel("Delay", { exact: true }).fill("99999d");
  await button(dialog, "Move the selected tasks").click();
  await isRefused(page, "move-delay", "The service says:");
  await writes(dialog, "2035-11-25 20:00", "Nowhere");
  await button(dialog, "Move the selected tasks").click();
  await isRefused(page, "move-zone", "Nowhere");
  await dialog.getByLabel("Time zone").fill("+08:00");
  await confirm(page, "Move the selected tasks");
  await says(page, "1 task was moved.");
  await open(page, `task/timed/${task}`);
  await page.waitForFunction(() => document.body.innerText.includes("2035-11-25 12:00:00 UTC"));
}

/**
 * The first failure opens the breaker of `fragile` for an hour. So the task waits for 50 ms, and is
 * then due but not called, until the probe.
 */
async function splitsTheWaitAfterAFailure(page) {
  const parts = page.locator(".segments li");
  const texts = () => parts.allTextContents();
  const { task_id } = await post(page, "delay/task/add", JSON.stringify({
    topic: "parts", delay: 0, max_attempts: 2, backoff: { kind: "fixed", every: "50ms" },
    content: { sn: "fragile", url: "/fails" },
  }));
  await open(page, `task/parts/${task_id}`);
  await parts.filter({ hasText: "due, but not called" }).last().waitFor();
  await parts.filter({ hasText: "wait after a failure" }).waitFor();
  await parts.filter({ hasText: "attempt 1" }).waitFor();
  assert.match((await texts()).at(-1), /^due, but not called/);

  await open(page, "destinations/fragile");
  await button(page, "Probe now fragile").click();
  await confirm(page, "Probe now");
  await open(page, `task/parts/${task_id}`);
  await badge(page, "dead").waitFor();
  // The notes are written in the background, and the page stops when the task has ended.
  await page.waitForFunction(async (id) => {
    const body = JSON.stringify({ topic: "parts", task_id: id });
    const headers = { "content-type": "application/json" };
    const answer = await fetch("delay/task/get", { method: "POST", headers, body });
    return (await answer.json()).task.log.length === 2;
  }, task_id);
  await page.reload();
  await parts.filter({ hasText: "attempt 2" }).waitFor();
  const shown = (await texts()).map((text) => text.replace(/ [\d.]+ \S+( \d+ \S+)?$/, ""));
  const after = shown.slice(shown.indexOf("attempt 1, failed"));
  const [first, second] = ["attempt 1, failed", "attempt 2, failed"];
  const expected = [first, "wait after a failure", "due, but not called", second];
  assert.deepEqual(after, expected);
  const wait = (await texts()).find((text) => text.startsWith("wait after a failure"));
  assert.equal(wait, "wait after a failure 50 ms");
}

await withPage(
  async (page) => {
    await page.goto(input.url);
    await page.getByText("Live", { exact: true }).waitFor();
    await choose(page, "Times", "utc");
    const task = await addsATaskAtALocalTime(page);
    await movesATaskToALocalTime(page, task);
    await movesSelectedTasksToALocalTime(page, task);
    await splitsTheWaitAfterAFailure(page);
  },
  // The refusals.
  { expected: ["400 (Bad Request)"] },
);
