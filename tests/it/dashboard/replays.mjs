// A service that failed: its tasks are added, found, replayed, and wait for its circuit breaker.
import assert from "node:assert/strict";
import {
  addTask, badge, button, confirm, input, link, open, post, says, withPage,
} from "./browser.mjs";

/** The button of a service changes `sn`, and nothing else that was written. */
async function choosesAService(page) {
  await open(page, "add");
  const content = page.getByLabel("Content");
  for (const [written, becomes] of [
    [
      '{"in": {"sn": "a"}, "big": 12345678901234567890,\n "sn" : "b", "url": "/x"}',
      '{"in": {"sn": "a"}, "big": 12345678901234567890,\n "sn": "fragile", "url": "/x"}',
    ],
    ['{"a": 1}', '{"sn": "fragile", "a": 1}'],
    ["{}", '{"sn": "fragile"}'],
    ["", '{"sn": "fragile", "url": "/"}'],
  ]) {
    await content.fill(written);
    await button(page, "fragile").click();
    assert.equal(await content.inputValue(), becomes);
  }
  for (const written of ["[1]", "half of {", '{"sn": {}}']) {
    await content.fill(written);
    await button(page, "fragile").click();
    await page.getByText("The content is not changed").waitFor();
    assert.equal(await content.inputValue(), written);
  }
}

/** One failed call opens the breaker for an hour. The second call of the task succeeds. */
async function replaysATaskOfAnOpenBreaker(page) {
  const content = '{"sn": "fragile", "url": "/breaks"}';
  await addTask(page, { topic: "breaks", delay: "0s", content, attempts: "1" });
  await badge(page, "dead").waitFor();
  const part = page.locator(".segments li", { has: page.locator(".segment-failed") });
  assert.match(await part.textContent(), /^attempt 1, failed/);
  await open(page, "");
  await page.getByText("fragile fails, so its circuit breaker is open.").waitFor();
  await page.locator(".notice.warn", { hasText: /tasks? (is|are) dead/ }).waitFor();

  await open(page, "tasks/breaks?state=dead");
  await button(page, "Replay all matching").waitFor();
  await page.getByRole("row").nth(1).getByRole("checkbox").check();
  await button(page, "Replay the selected tasks").click();
  await page.getByRole("dialog").getByText("1 task is selected.").waitFor();
  await confirm(page, "Replay");
  await says(
    page,
    "1 task was replayed. The circuit breaker of fragile is open: calls begin when it closes.",
  );
  await page.getByText("There are no such tasks.").waitFor();

  await open(page, "destinations/fragile");
  await page.locator(".field", { hasText: "Next probe in" }).waitFor();
  const dead = await link(page, "Search its dead tasks").getAttribute("href");
  assert.equal(dead, "#/tasks?by=sn&q=fragile&state=dead");
  await link(page, "Search its waiting tasks").click();
  await page.waitForFunction(() => /^#\/tasks\/.*by=sn&q=fragile/.test(location.hash));

  await open(page, "destinations/fragile");
  await button(page, "Probe now fragile").click();
  await confirm(page, "Probe now");
  await page.locator(".field", { hasText: "Circuit breaker" }).getByText("closed").waitFor();
  await page.getByText("The circuit breaker of fragile is").waitFor({ state: "detached" });
  // The log has only the attempt that failed.
  await open(page, "tasks/breaks?state=delivered");
  await page.getByRole("row").nth(1).getByRole("link").click();
  await part.waitFor();
}

async function replaysACauseOfAHeldDestination(page) {
  const content = '{"sn": "message.call", "url": "/dies"}';
  await addTask(page, { topic: "holds", delay: "0s", content });
  await badge(page, "dead").waitFor();
  await post(page, "delay/destination/hold", '{"sn": "message.call"}');
  await open(page, "");
  await page.getByText("message.call is held by an operator.").waitFor();
  await open(page, "dead/holds");
  await page.getByRole("button", { name: "Replay holds, 410" }).click();
  await confirm(page, "Replay");
  await says(page, "1 task was replayed. message.call is held: calls begin when it is released.");
  await post(page, "delay/destination/release", '{"sn": "message.call"}');
}

await withPage(async (page) => {
  await page.goto(input.url);
  await page.getByText("Live", { exact: true }).waitFor();
  await choosesAService(page);
  await replaysATaskOfAnOpenBreaker(page);
  await replaysACauseOfAHeldDestination(page);
});
