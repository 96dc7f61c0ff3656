// A change of many tasks names what it selects, and a late answer belongs to the list it was for.
import assert from "node:assert/strict";
import { button, confirm, input, open, says, withPage } from "./browser.mjs";

const CANCEL = "**/delay/task/cancel_many";
const rows = (page) => page.locator("tbody tr");
const dialog = (page) => page.getByRole("dialog");

const answer = (fields) => ({
  status: 200,
  contentType: "application/json",
  body: JSON.stringify({ dm_error: 0, error_msg: "", sample: [], cursor: null, ...fields }),
});

/** The dialog is left while its call runs, and another list is opened. */
async function readsNothingForAListThatWasLeft(page) {
  await open(page, "tasks/orders");
  await rows(page).nth(2).waitFor();
  let release;
  const released = new Promise((done) => (release = done));
  await page.route(CANCEL, async (route) => {
    if (route.request().postDataJSON().dry_run) return route.continue();
    await released;
    return route.fulfill(answer({ count: 0, seen: 3 }));
  });
  await button(page, "Cancel all matching").click();
  await dialog(page).getByRole("textbox").fill("orders");
  const sent = page.waitForRequest((request) =>
    request.url().endsWith("/cancel_many") && !request.postDataJSON().dry_run);
  await button(dialog(page), "Cancel all matching").click();
  await sent;
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "detached" });
  await open(page, "tasks/orders?by=sn&q=message.call");
  await rows(page).nth(2).waitFor();
  release();
  await says(page, "0 tasks were cancelled.");
  await page.getByText("3 tasks were looked at.").waitFor();
  assert.equal(await rows(page).count(), 3);
  await page.unroute(CANCEL);
}

async function namesWhatItSelects(page) {
  await open(page, "tasks/orders");
  await rows(page).nth(2).waitFor();
  await button(page, "Cancel all matching").click();
  await dialog(page).getByText("There is no filter: all tasks of this state.").waitFor();
  await button(dialog(page), "Cancel").click();

  await open(page, `tasks/orders?from=${input.now}&to=${input.now + 86_400}&by=sn&q=message.call`);
  await rows(page).nth(2).waitFor();
  await button(page, "Move all matching").click();
  await dialog(page).getByText("service: message.call").waitFor();
  const period = await dialog(page).locator(".selected").allTextContents();
  assert.match(period.join("\n"), /From \(UTC\): .* UTC\nTo \(UTC\): .* UTC/);
  await button(dialog(page), "Cancel").click();
}

/** A filter that is not complete must not select all tasks. */
async function refusesHalfATime(page) {
  await open(page, "tasks/orders");
  await page.getByLabel("From (UTC)").focus();
  await page.keyboard.type("1224");
  await button(page, "Show the tasks").click();
  await page.getByText("Complete the time, or clear it.").waitFor();
  assert.equal(await page.getByLabel("From (UTC)").getAttribute("aria-invalid"), "true");
  await open(page, "topics");
}

/** A dry run that met no task within its bounds does not say that there is none. */
async function goesOnAfterADryRunThatWasCut(page) {
  await page.route(CANCEL, (route) => {
    const { dry_run } = route.request().postDataJSON();
    return route.fulfill(
      answer(dry_run ? { count: 0, seen: 10_000, cursor: "1-1" } : { count: 2, seen: 9 }),
    );
  });
  await open(page, "tasks/orders?by=sn&q=message.call");
  await button(page, "Cancel all matching").click();
  await dialog(page).getByText("100,000 tasks were looked at.").waitFor();
  await confirm(page, "Cancel all matching", "orders");
  await says(page, "2 tasks were cancelled.");
  await page.unroute(CANCEL);
}

await withPage(async (page) => {
  await page.goto(input.url);
  await page.getByText("Live", { exact: true }).waitFor();
  await readsNothingForAListThatWasLeft(page);
  await namesWhatItSelects(page);
  await refusesHalfATime(page);
  await goesOnAfterADryRunThatWasCut(page);
});
