// An operator without a token: the live overview, preferences, a task from the form to its end, a
// pause, and the accessibility of all pages.
import assert from "node:assert/strict";
import { choose, input, isAccessible, open, withPage } from "./browser.mjs";

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
  await page.getByLabel("Delay", { exact: true }).fill("4s");
  await page.getByRole("textbox", { name: "Topic" }).fill("shop:cart.v1");
  await page.getByRole("button", { name: "Add the task" }).click();
  await page.getByText("The page follows the task until it ends.").waitFor();
  await page.getByText("The task has ended.").waitFor();
  await page.locator(".badge", { hasText: "delivered" }).waitFor();
  const shown = await page.locator("pre[data-content]").textContent();
  assert.equal(shown, content);
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert((await page.locator(".mark").count()) >= 3, "marks of direction are visible");
  return page.evaluate(() => location.hash.slice(2));
}

async function pausesATopic(page) {
  await open(page, "topics");
  await page.getByRole("searchbox").fill("ORD");
  await page.getByText("1 of 2 are shown.").waitFor();
  await page.getByRole("button", { name: "Pause orders" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Pause orders?").waitFor();
  // The list is read again every few seconds; the dialog stays.
  await page.waitForTimeout(1500);
  await isAccessible(page, "the dialog");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  // The focus returns to the button that opened the dialog.
  await page.waitForFunction(
    () => document.activeElement?.getAttribute("aria-label") === "Pause orders",
  );
  await page.keyboard.press("Enter");
  await dialog.getByRole("button", { name: "Pause" }).click();
  await page.locator(".badge", { hasText: "paused" }).waitFor();
  await open(page, "audit");
  await page.getByText("topic/pause").waitFor();
  await open(page, "");
  await page.getByText("1 topic is paused.").waitFor();
}

/** While a tab is hidden it has no stream. */
async function closesTheStreamWhileHidden(page) {
  const setHidden = (isHidden) =>
    page.evaluate((isHidden) => {
      Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, isHidden);
  await setHidden(true);
  await page.getByText("Paused while hidden").waitFor();
  await setHidden(false);
  await page.getByText("Live", { exact: true }).waitFor();
}

async function isAccessibleEverywhere(page, task) {
  const pages = ["", "topics", "destinations", task, "add", "system", "audit"];
  const looks = [
    ["light", "en", 1440],
    ["dark", "zh", 1440],
    ["light", "zh", 360],
    ["dark", "en", 360],
  ];
  for (const [theme, language, width] of looks) {
    await page.evaluate(([theme, language]) => {
      localStorage.setItem("delayd.theme", theme);
      localStorage.setItem("delayd.language", language);
    }, [theme, language]);
    await page.setViewportSize({ width, height: 900 });
    await page.reload();
    await page.locator("nav").waitFor();
    for (const name of pages) {
      await open(page, name);
      await isAccessible(page, `#/${name}, ${theme}, ${language}, ${width} px`);
    }
  }
}

await withPage(async (page) => {
  await seesTheStateLive(page);
  await switchesPreferences(page);
  const task = await followsATask(page);
  await pausesATopic(page);
  await closesTheStreamWhileHidden(page);
  await isAccessibleEverywhere(page, task);
});
