// Names, outcomes, answers, keys and contents of other people are shown as text.
import assert from "node:assert/strict";
import { button, input, isLoaded, link, open, says, withPage } from "./browser.mjs";

const { url, token, tokenName, topic, task, odd, content } = input;

/** The page has its own elements only, and no script of a text has run. */
async function isHarmless(page) {
  const picture = "svg:not(.segments > svg, .sparkline), img:not([src='docs/icon.svg'])";
  const strange = `${picture}, iframe, object, embed, main script`;
  assert.equal(await page.locator(strange).count(), 0);
  assert.equal(await page.locator("script").count(), 1);
  assert.equal(await page.evaluate(() => window.broken), undefined);
}

const texts = (page, selector) => page.locator(selector).allTextContents();

async function hasText(page, selector, text) {
  const found = await texts(page, selector);
  assert(found.includes(text), `${selector} has no ${text}: ${found.join(" | ").slice(0, 2000)}`);
}

async function showsATask(page) {
  await open(page, `task/${topic}/${task}`);
  const shown = await page.locator("pre[data-content]").textContent();
  assert(shown === content, `${shown.length} of ${content.length} characters`);
  await hasText(page, ".field dd", odd);
  await hasText(page, ".timeline p", odd);
  await page.locator(".timeline summary").first().click();
  await hasText(page, ".timeline pre", odd);
  await page.locator("main > details > summary").click();
  const raw = await page.locator("main > details > pre").textContent();
  assert.equal(JSON.parse(raw).task.content, content);
  const marked = await page.locator(".field .mark").first().getAttribute("data-mark");
  assert.equal(marked, "U+202E");
  await isHarmless(page);
}

async function showsCauses(page) {
  await open(page, "dead");
  await hasText(page, "td:first-child", odd);
  const replay = page.locator("tbody button").first();
  assert.equal(await replay.getAttribute("aria-label"), `Replay ${topic}, ${odd}`);
  await replay.click();
  await page.getByText("Dry run: 1 task would be replayed.").waitFor();
  await hasText(page, "dialog b", odd);
  await isHarmless(page);
  await page.keyboard.press("Escape");
  await open(page, `tasks/${topic}?state=dead`);
  await hasText(page, "td", odd);
  await isHarmless(page);
}

/** The address is a text of other people as well: anyone may send a link. */
async function showsTheAddress(page) {
  for (const name of ["topics", "tasks", "dead", "task"]) {
    const address = `${encodeURIComponent(odd)}/${encodeURIComponent(odd)}`;
    await open(page, `${name}/${address}?state=${encodeURIComponent(odd)}&cursor=%3Cimg%3E`);
    await page.getByRole("alert").first().waitFor();
    await isHarmless(page);
  }
  await open(page, encodeURIComponent(odd));
  await page.getByText("This does not exist").waitFor();
  await isHarmless(page);
}

async function showsNames(page) {
  await open(page, "topics");
  await button(page, `Pause ${topic}`).click();
  await button(page.getByRole("dialog"), "Pause").click();
  await says(page, "is paused.");
  await open(page, "audit");
  await hasText(page, "td", tokenName);
  await open(page, "system");
  await hasText(page, ".field dd", tokenName);
  await hasText(page, ".about bdi", `token ${tokenName}`);
  await isHarmless(page);
}

await withPage(
  async (page) => {
    await page.goto(url);
    await page.getByLabel("Access token", { exact: true }).fill(token);
    await button(page, "Use the token").click();
    await link(page, "Overview").waitFor();
    await isLoaded(page);
    await showsATask(page);
    await showsCauses(page);
    await showsNames(page);
    await showsTheAddress(page);
  },
  // The first call has no token, and the topics of the addresses do not exist.
  { expected: ["401 (Unauthorized)", "400 (Bad Request)", "404 (Not Found)"] },
);
