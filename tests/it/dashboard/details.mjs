// Selected tasks, the figures of the instance, and the page without a pointer.
import assert from "node:assert/strict";
import {
  badge, button, confirm, input, open, post, says, withPage,
} from "./browser.mjs";

const rows = (page) => page.locator("tbody tr");

/** Of three tasks, two are moved, and one of these is cancelled. */
async function selectsTasks(page) {
  const ids = [];
  for (const delay of ["1h", "2h", "3h"]) {
    const body = JSON.stringify({ topic: "chosen", delay, content: {} });
    ids.push(String((await post(page, "delay/task/add", body)).task_id));
  }
  await open(page, "tasks/chosen");
  await rows(page).nth(2).waitFor();
  const dialog = page.getByRole("dialog");
  for (const id of ids.slice(1)) await page.getByLabel(`Select task ${id}`).check();
  await page.getByText("2 tasks are selected.").waitFor();
  await button(page, "Move the selected tasks").click();
  await dialog.getByText("Dry run: 2 tasks would be moved.").waitFor();
  await dialog.getByLabel("Delay", { exact: true }).fill("9h");
  await confirm(page, "Move the selected tasks");
  await says(page, "2 tasks were moved.");
  await page.getByLabel("Select all tasks of this page").check();
  await page.getByText("3 tasks are selected.").waitFor();
  await page.getByLabel("Select all tasks of this page").uncheck();
  await page.getByLabel(`Select task ${ids[2]}`).check();
  await button(page, "Cancel the selected tasks").click();
  await dialog.getByText("1 task is selected.").waitFor();
  await confirm(page, "Cancel the selected tasks", "chosen");
  await says(page, "1 task was cancelled.");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 2);
  const kept = await rows(page).getByRole("link").allTextContents();
  assert.deepEqual(kept.sort(), ids.slice(0, 2).sort());
  assert.equal(await page.getByText("selected.").count(), 0);

  await open(page, "topics/chosen");
  await page.getByText("0 tasks are overdue. 2 tasks fall due within the span.").waitFor();
  await page.locator("[data-forecast] canvas").waitFor();
}

/** The store's calls, the disk or the server, the configuration and the log. */
async function seesHowItWorks(page) {
  await open(page, "system");
  const calls = page.getByRole("group", { name: "Store calls of the last minute" });
  await calls.getByRole("cell", { name: "add", exact: true }).waitFor();
  await page.getByText("Clock of the store ahead by").waitFor();
  await page.locator(".field", { hasText: /Free disk space|answers/ }).first().waitFor();
  await page.getByText("Reloads that were taken").waitFor();
  await page.getByText(/Since its start, the instance logged \d+ errors?/).waitFor();
  await open(page, "");
  const tile = page.locator(".tile", { hasText: "Store calls" });
  assert.match(await tile.textContent(), / m?s\s*$/);
  await page.locator(".tile", { hasText: "Instances" }).getByText("of which 1").waitFor();
}

/** Presses Tab until the element with this text or label has the focus. */
async function tabTo(page, name) {
  for (let presses = 0; presses < 80; presses += 1) {
    await page.keyboard.press("Tab");
    const names = await page.evaluate(() => {
      const { textContent, labels } = document.activeElement;
      return [textContent, ...[...(labels ?? [])].map((label) => label.textContent)];
    });
    if (names.includes(name)) return;
  }
  assert.fail(`Tab does not reach ${name}`);
}

/** Adds and cancels a task without a pointer. */
async function usesTheKeyboard(page) {
  await page.reload();
  await page.getByText("Live", { exact: true }).waitFor();
  const press = (key) => page.keyboard.press(key);
  await tabTo(page, "Skip to the content");
  await press("Enter");
  assert(await page.evaluate(() => document.activeElement.matches("main")));
  await page.reload();
  await page.getByText("Live", { exact: true }).waitFor();
  await tabTo(page, "Add a task");
  await press("Enter");
  await page.getByRole("heading", { name: "Add a task" }).waitFor();
  await tabTo(page, "Topic");
  await page.keyboard.type("keys");
  await tabTo(page, "Delay");
  await press("Control+A");
  await page.keyboard.type("1h");
  await tabTo(page, "Add the task");
  await press("Enter");
  await badge(page, "scheduled").waitFor();
  await tabTo(page, "Cancel the task");
  await press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await tabTo(page, "Cancel the task");
  await press("Enter");
  await dialog.waitFor({ state: "detached" });
  await badge(page, "cancelled").waitFor();
}

await withPage(async (page) => {
  await page.goto(input.url);
  await page.getByText("Live", { exact: true }).waitFor();
  await selectsTasks(page);
  await seesHowItWorks(page);
  await usesTheKeyboard(page);
});
