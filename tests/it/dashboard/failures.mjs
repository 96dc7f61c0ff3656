// What the page says if the service refuses, is overloaded, or does not answer.
import assert from "node:assert/strict";
import { button, input, open, says, withPage } from "./browser.mjs";

const overloaded = {
  status: 503,
  contentType: "application/json",
  body: JSON.stringify({ dm_error: 2003, error_msg: "the store is away", request_id: "r-1" }),
};

const answer = (route, fields) =>
  route.fulfill({ json: { dm_error: 0, error_msg: "", ...fields } });

/** The third call fails, and the repeat goes on from the cursor of the second one. */
async function purgesInSeveralCalls(page) {
  await page.route("**/delay/dead/causes", (route) =>
    answer(route, {
      causes: [{ reason: "410 Gone", count: 300, first_ms: 1, last_ms: 2, task_id: 7 }],
      more: false,
    }),
  );
  const cursors = [];
  await page.route("**/delay/dead/purge", (route) => {
    const { dry_run, cursor = null } = route.request().postDataJSON();
    if (dry_run) return answer(route, { count: 300, more: false });
    cursors.push(cursor);
    if (cursors.length === 3) return route.fulfill(overloaded);
    const next = `after-${cursors.length}`;
    const isLast = cursors.length === 4;
    return answer(route, { count: 100, more: !isLast, ...(!isLast && { cursor: next }) });
  });
  await open(page, "dead/orders");
  await button(page, "Purge all").click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox").fill("orders");
  await dialog.getByText("Dry run: 300 tasks would be deleted.").waitFor();
  await button(dialog, "Purge").click();
  await dialog.getByText("200 tasks were deleted. There are more dead letters.").waitFor();
  await dialog.getByText("The change is not confirmed.").waitFor();
  await button(dialog, "Purge").click();
  await dialog.waitFor({ state: "detached" });
  await says(page, "300 tasks were deleted.");
  assert.deepEqual(cursors, [null, "after-1", "after-2", "after-2"]);
  await page.unroute("**/delay/dead/causes");
  await page.unroute("**/delay/dead/purge");
}

/** A read that takes longer than the time between two reads still ends. */
async function readsSlowly(page) {
  const path = "**/delay/topic/get";
  await page.route(path, async (route) => {
    await new Promise((done) => setTimeout(done, 4000));
    await route.continue();
  });
  await open(page, "topics/orders");
  await button(page, "Delete the topic").waitFor();
  await page.unroute(path);
}

await withPage(
  async (page) => {
    const fail = (path) => page.route(`**${path}`, (route) => route.fulfill(overloaded));
    await page.goto(input.url);
    await page.getByText("Live", { exact: true }).waitFor();

    await fail("/delay/topic/list");
    await open(page, "topics");
    const alert = page.getByRole("alert");
    await alert.getByText("The service cannot do this now. Try again later.").waitFor();
    await alert.getByText("The service says: the store is away").waitFor();
    await alert.getByText("Request r-1").waitFor();
    // The page asks again by itself.
    await page.unroute("**/delay/topic/list");
    await alert.waitFor({ state: "detached" });

    await fail("/delay/topic/pause");
    await button(page, "Pause orders").click();
    const dialog = page.getByRole("dialog");
    await button(dialog, "Pause").click();
    await dialog.getByText("The change is not confirmed.").waitFor();
    await page.unroute("**/delay/topic/pause");
    await button(dialog, "Pause").click();
    await dialog.waitFor({ state: "detached" });
    await page.locator(".badge", { hasText: "paused" }).waitFor();

    // A question that counts first goes on counting.
    await fail("/delay/topic/forecast");
    await button(page, "Resume orders").click();
    await alert.getByText("The service cannot do this now. Try again later.").waitFor();
    await page.unroute("**/delay/topic/forecast");
    await dialog.getByText("0 tasks are due and waiting.").waitFor();
    // The failure of a question that was closed is told on the page.
    let release;
    const held = new Promise((done) => (release = done));
    await page.route("**/delay/topic/resume", (route) => {
      return held.then(() => route.fulfill(overloaded));
    });
    await button(dialog, "Resume").click();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    release();
    await page.locator("main").getByText("Resume orders?").waitFor();
    await alert.getByText("The change is not confirmed.").waitFor();
    await page.unroute("**/delay/topic/resume");

    await purgesInSeveralCalls(page);
    await readsSlowly(page);
    await open(page, "task/orders/1");
    await page.getByText("This does not exist, or no longer.").waitFor();

    // From here on nothing answers.
    process.kill(input.pid, "SIGKILL");
    await page.getByText("Connection lost").waitFor();
    await open(page, "destinations");
    await alert.getByText("The service does not answer. The page tries again.").waitFor();
    await open(page, "add");
    await page.getByRole("textbox", { name: "Topic" }).fill("orders");
    await button(page, "Add the task").click();
    await alert.getByText("The change is not confirmed.").waitFor();
  },
  { expected: ["503 (Service Unavailable)", "404 (Not Found)", "net::ERR_"] },
);
