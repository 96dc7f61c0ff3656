// The settings of a topic are changed in a form, which sends what differs.
import assert from "node:assert/strict";
import { addTask, button, confirm, input, open, says, withPage } from "./browser.mjs";

const setting = (page, name) => page.locator(".field", { hasText: name }).locator("dd").first();
const dialog = (page) => page.getByRole("dialog");
const edits = (page) => button(page, "Edit the settings").click();

/** The requests that change settings, without the topic. */
function changes(page) {
  const found = [];
  page.on("request", (request) => {
    if (!request.url().endsWith("/delay/topic/set")) return;
    const { topic, ...fields } = request.postDataJSON();
    assert.equal(topic, "tuned");
    found.push(fields);
  });
  return found;
}

/** Some text is no number, and some is refused by the service. Nothing changes. */
async function refusesBadValues(page) {
  await edits(page);
  await dialog(page).locator("button[aria-disabled=true]").waitFor();
  await dialog(page).getByLabel("Quota").fill("many");
  await dialog(page).getByText("This must be a whole number.").waitFor();
  await dialog(page).getByLabel("Backoff").fill("10s");
  await dialog(page).getByText("This must be a JSON object.").waitFor();
  await dialog(page).getByLabel("Final statuses").fill("410; 422");
  await dialog(page).getByText("These must be whole numbers").waitFor();
  await dialog(page).locator("button[aria-disabled=true]").waitFor();
  for (const name of ["Quota", "Backoff", "Final statuses"]) {
    await dialog(page).getByLabel(name).fill("");
  }
  await dialog(page).getByLabel("Timeout of a callback").fill("1h");
  await button(dialog(page), "Save").click();
  await dialog(page).getByRole("alert").filter({ hasText: "timeout" }).waitFor();
  await page.keyboard.press("Escape");
  await dialog(page).waitFor({ state: "detached" });
  await page.getByText("The topic has no settings of its own").waitFor();
}

async function setsAndResets(page, sent) {
  await edits(page);
  const fields = {
    "Attempts at most": "7",
    Backoff: '{"kind": "fixed", "every": "90s"}',
    "Final statuses": "410, 422",
    "Timeout of a callback": "10s",
    "Rate, per instance": "100/s",
    "History is kept for": "3d",
    "Ended tasks at most": "5000",
  };
  for (const [name, text] of Object.entries(fields)) await dialog(page).getByLabel(name).fill(text);
  await dialog(page).getByLabel("Mode").selectOption("push");
  await dialog(page).getByLabel("Tasks that fall due in a pause").selectOption("skip");
  await confirm(page, "Save");
  await says(page, "The settings of tuned are changed.");
  assert.deepEqual(sent.pop(), {
    retry: {
      max_attempts: 7, backoff: { kind: "fixed", every: "90s" }, final_statuses: [410, 422],
    },
    history: { keep: "3d", max: 5000 },
    timeout: "10s", mode: "push", rate: "100/s", misfire: "skip",
  });

  // A part that is emptied resets the whole setting, so the other parts are sent again.
  await edits(page);
  assert.equal(await dialog(page).getByLabel("Attempts at most").inputValue(), "7");
  assert.equal(await dialog(page).getByLabel("History is kept for").inputValue(), "3d");
  const backoff = await dialog(page).getByLabel("Backoff").inputValue();
  assert.deepEqual(JSON.parse(backoff), { kind: "fixed", every: "90s" });
  await dialog(page).getByLabel("Attempts at most").fill("");
  await dialog(page).getByLabel("Mode").selectOption("as configured");
  await dialog(page).getByLabel("Quota").fill("9");
  await confirm(page, "Save");
  await setting(page, "Quota").waitFor();
  assert.deepEqual(sent.pop(), {
    retry: { backoff: { kind: "fixed", every: "90s" }, final_statuses: [410, 422] },
    quota: 9, reset: ["retry", "mode"],
  });
  assert.equal(await setting(page, "Final statuses").textContent(), "410, 422");
  assert.equal(await setting(page, "Attempts at most").count(), 0);
  assert.equal(await setting(page, "Mode").count(), 0);
}

await withPage(
  async (page) => {
    await page.goto(input.url);
    const sent = changes(page);
    await addTask(page, { topic: "tuned", delay: "1h", content: "{}" });
    await open(page, "topics/tuned");
    await refusesBadValues(page);
    await setsAndResets(page, sent);
  },
  // The service refuses a timeout.
  { expected: ["400 (Bad Request)"] },
);
