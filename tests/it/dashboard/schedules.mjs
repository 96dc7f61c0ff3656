// Recurring schedules: each action once, with refusals at their fields.
import assert from "node:assert/strict";
import {
  badge, button, confirm, input, isLoaded, link, open, says, withPage,
} from "./browser.mjs";

const { content } = input;
const dialog = (page) => page.getByRole("dialog");
const rows = (page) => page.locator("main tbody tr");
const field = (page, name) => dialog(page).getByLabel(name, { exact: true });

async function choosesATopic(page) {
  await open(page, "schedules");
  await page.getByText("A recurring schedule belongs to a topic: name one.").waitFor();
  await page.getByRole("textbox", { name: "Topic" }).fill("bill");
  await button(page, "Show the schedules").click();
  await page.getByText("The topic has no recurring schedules.").waitFor();
}

/** The service refused a field: its sentence stands there, and the field has the focus. */
async function isRefused(page, id, sentence) {
  await page.locator(`#${id}-help`, { hasText: sentence }).waitFor();
  await page.waitForFunction((id) => document.activeElement?.id === id, id);
}

async function setsASchedule(page) {
  await button(page, "Set a schedule").click();
  await field(page, "Name").fill("nightly");
  const cron = field(page, "Cron expression");
  await cron.fill("30 2 * *");
  await dialog(page).getByRole("alert").filter({ hasText: "cron: expected" }).waitFor();
  await cron.fill("30 2 * * *");
  await field(page, "Time zone (optional)").fill("Europe/Berlin");
  const moments = dialog(page).locator("tbody tr");
  await moments.filter({ hasText: /T02:30:00\+0[12]:00/ }).first().waitFor();
  assert.equal(await moments.count(), 5);
  await field(page, "Content").fill("[]");
  await dialog(page).getByText("The content must be a JSON object.").waitFor();
  await field(page, "Content").fill(content);
  await dialog(page).getByText("one occurrence stands for all moments").waitFor();
  await field(page, "Missed moments (misfire)").selectOption("all");
  await dialog(page).getByText("Each missed moment has its own occurrence").waitFor();
  await field(page, "While an earlier one runs (overlap)").selectOption("skip");
  await dialog(page).getByText("has not ended expires").waitFor();
  await field(page, "Other options (optional)").fill('{"max_attempts": 0}');
  await button(dialog(page), "Save").click();
  await isRefused(page, "set-options", "The service says:");
  await field(page, "Other options (optional)").fill('{"max_attempts": 3}');
  await confirm(page, "Save");
  await says(page, "nightly is created.");
  const cells = await rows(page).first().getByRole("cell").allTextContents();
  assert.deepEqual(cells.slice(0, 4), ["nightly", "30 2 * * *", "Europe/Berlin", "active"]);
}

async function pausesAndResumesIt(page) {
  await button(page, "Pause nightly").click();
  await confirm(page, "Pause");
  await says(page, "nightly is paused.");
  await badge(page, "paused").waitFor();
  await button(page, "Resume nightly").click();
  await confirm(page, "Resume");
  await says(page, "nightly is resumed.");
  await badge(page, "active").waitFor();
  await link(page, "nightly").click();
  await page.getByRole("heading", { name: "Schedule nightly" }).waitFor();
  await button(page, "Pause").click();
  await confirm(page, "Pause");
  await page.getByText("After a resume, these are its moments:").waitFor();
  await button(page, "Resume").click();
  await confirm(page, "Resume");
  await badge(page, "active").waitFor();
}

async function showsAndRunsIt(page) {
  await page.getByText("Each missed moment has its own occurrence").waitFor();
  await page.getByText("An occurrence that falls due while an earlier one").waitFor();
  const next = page.getByRole("group", { name: "Next moments" }).locator("tbody tr");
  await next.first().waitFor();
  assert.equal(await next.count(), 5);
  await page.getByText("scheduled").first().waitFor();
  assert.equal(await page.locator("pre[data-content]").textContent(), content);
  await button(page, "Run now").click();
  await confirm(page, "Run now");
  await page.locator("main [role=status]", { hasText: /Task \d+ of bill is added\./ }).waitFor();
}

/** The form has what is stored, so a save without a change changes nothing. */
async function changesIt(page) {
  await button(page, "Change").click();
  assert.equal(await field(page, "Content").inputValue(), content);
  await confirm(page, "Save");
  await says(page, "nightly was the same already.");
  await button(page, "Change").click();
  await field(page, "Cron expression").fill("0 3 * * *");
  await confirm(page, "Save");
  await says(page, "nightly is changed.");
  await page.locator(".field", { hasText: "Rule" }).getByText("0 3 * * *").waitFor();
  await page.getByText('"max_attempts": 3').waitFor();
}

/** One that fires each second is called, and its occurrences end. */
async function seesOccurrences(page) {
  await open(page, "schedules/bill");
  await button(page, "Set a schedule").click();
  await field(page, "Name").fill("tick");
  await dialog(page).getByLabel("a fixed distance").check();
  await field(page, "Distance").fill("1s");
  await field(page, "Content").fill('{"sn": "message.call", "url": "/tick"}');
  await confirm(page, "Save");
  await says(page, "tick is created.");
  await link(page, "tick").click();
  const recent = page.getByRole("group", { name: "Last occurrences" }).locator("tbody tr");
  await recent.filter({ hasText: "delivered" }).first().waitFor();
  await recent.filter({ hasText: "200 OK" }).first().waitFor();
  await button(page, "Pause").click();
  await confirm(page, "Pause");
  await badge(page, "paused").waitFor();
  await link(page, "bill").first().click();
  const row = rows(page).filter({ hasText: "tick" });
  await row.getByText("delivered").first().waitFor();
  assert.equal(await row.getByRole("cell").nth(1).textContent(), "every 1 s");
}

async function deletesIt(page) {
  await open(page, "schedules/bill/nightly");
  await button(page, "Delete the schedule").click();
  await confirm(page, "Delete the schedule", "nightly");
  await says(page, "nightly is deleted.");
  await rows(page).filter({ hasText: "tick" }).waitFor();
  assert.equal(await link(page, "nightly").count(), 0);
  await open(page, "schedules/bill/nightly");
  await page.getByRole("alert").waitFor();
  await open(page, "topics/bill");
  await page.getByRole("main").getByRole("link", { name: "Schedules" }).click();
  await rows(page).filter({ hasText: "tick" }).waitFor();
}

/** The audit log has what was done to each schedule, and a link to it. */
async function seesWhoDidIt(page) {
  await open(page, "audit");
  const entries = (action, name) =>
    rows(page).filter({ hasText: action }).filter({ hasText: name });
  // The entries come into the store a little later.
  while ((await entries("schedule/delete", "bill nightly").count()) === 0) {
    await button(page, "Newest entries").click();
    await isLoaded(page);
  }
  for (const action of ["set", "pause", "resume"]) {
    await entries(`schedule/${action}`, "bill nightly").first().waitFor();
  }
  await entries("schedule/pause", "bill tick").getByRole("link", { name: "tick" }).click();
  await page.getByRole("heading", { name: "Schedule tick" }).waitFor();
}

await withPage(
  async (page) => {
    await page.goto(input.url);
    await page.getByText("Live", { exact: true }).waitFor();
    await choosesATopic(page);
    await setsASchedule(page);
    await pausesAndResumesIt(page);
    await showsAndRunsIt(page);
    await changesIt(page);
    await seesOccurrences(page);
    await deletesIt(page);
    await seesWhoDidIt(page);
  },
  // What the service refuses, and the schedule that is deleted.
  { expected: ["400 (Bad Request)", "404 (Not Found)"] },
);
