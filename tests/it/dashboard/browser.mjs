// A browser, which records every error of its pages. The arguments of a script are the folder of
// the dashboard's sources, where npm installed the libraries, and a file with the input as JSON.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const [, , sources, file] = process.argv;
export const input = JSON.parse(readFileSync(file, "utf8"));

const require = createRequire(`${sources}/package.json`);
const { chromium } = require("playwright-core");
const { PNG } = require("playwright-core/lib/utilsBundle");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const ARGUMENTS = [
  "--no-sandbox",
  "--headless",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A bound for a busy machine: each step waits for what it expects, not for a time. */
const PATIENCE = 60_000;

/** Some steps have no bound of their own: what a page evaluates, a new page, and a close. */
const LONGEST = 300_000;

/** Fails if `steps` do not end. */
async function ends(steps) {
  let timer;
  const never = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`no end after ${LONGEST} ms`)), LONGEST);
  });
  try {
    await Promise.race([steps, never]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Runs `steps` with a page, and fails if a page of the browser had an error or opened a dialog.
 * Errors of the content security policy are among those of the console.
 */
export async function withPage(steps, { expected = [], args = [] } = {}) {
  const executablePath = process.env.CHROMIUM ?? PROGRAMS.find(existsSync);
  assert(executablePath, "chromium is not installed; CHROMIUM may name it");
  const browser = await chromium.launch({ executablePath, args: [...ARGUMENTS, ...args] });
  try {
    const viewport = { width: 1440, height: 900 };
    const context = await browser.newContext({ viewport, locale: "en", timezoneId: "UTC" });
    context.setDefaultTimeout(PATIENCE);
    const errors = [];
    context.on("weberror", (error) => errors.push(error.error().message));
    context.on("console", (message) => {
      const isExpected = expected.some((text) => message.text().includes(text));
      const isBad = ["error", "warning"].includes(message.type());
      if (isBad && !isExpected) errors.push(message.text());
    });
    context.on("dialog", (dialog) => {
      errors.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    const page = await context.newPage();
    try {
      await ends(steps(page));
    } catch (error) {
      const texts = context.pages().map((tab) => tab.locator("body").innerText().catch(String));
      const shown = (await Promise.all(texts)).join("\n\nthe next page:\n");
      throw new Error(`${error.message}\n\nthe page:\n${shown}\n\n${errors.join("\n")}`, {
        cause: error,
      });
    }
    assert.deepEqual(errors, [], "the console of the page");
  } finally {
    await browser.close();
  }
}

/** Opens a page of the dashboard by its hash, and waits until it has read what it shows. */
export async function open(page, name) {
  await page.evaluate(
    (hash) =>
      new Promise((done) => {
        const painted = () => requestAnimationFrame(() => setTimeout(done));
        if (location.hash === hash) return painted();
        addEventListener("hashchange", painted, { once: true });
        location.hash = hash;
      }),
    `#/${name}`,
  );
  await page.locator("main h1").waitFor();
  await isLoaded(page);
}

export const isLoaded = (page) =>
  page.waitForFunction(() => !document.querySelector("[data-loading]"));

export const choose = (page, label, value) => page.getByLabel(label).selectOption(value);

export const link = (page, name) => page.getByRole("link", { name, exact: true });
export const button = (page, name) => page.getByRole("button", { name, exact: true });
export const badge = (page, text) => page.locator("main .badge", { hasText: text }).first();

/** Calls the API from the page. */
export const post = (page, path, body) =>
  page.evaluate(
    async ([path, body]) => {
      const headers = { "content-type": "application/json" };
      return (await fetch(path, { method: "POST", headers, body })).json();
    },
    [path, body],
  );

/** The sentence that says what the last action did. */
export const says = (page, text) => page.locator("main [role=status]", { hasText: text }).waitFor();

/** Presses the button of the open dialog, after its name was typed if that is needed. */
export async function confirm(page, action, retype) {
  const dialog = page.getByRole("dialog");
  if (retype !== undefined) {
    await page.locator(`dialog button[aria-disabled=true]`).waitFor();
    await dialog.getByRole("textbox", { name: `Type ${retype} to confirm` }).fill(retype);
  }
  await button(dialog, action).click();
  await dialog.waitFor({ state: "detached" });
}

/** Adds a task in the form, and waits until the page follows it. */
export async function addTask(page, { topic, delay, content, attempts = "" }) {
  await open(page, "add");
  await page.getByRole("textbox", { name: "Topic" }).fill(topic);
  await page.getByLabel("Delay", { exact: true }).fill(delay);
  await page.getByLabel("Content").fill(content);
  await page.getByLabel("Attempts at most").fill(attempts);
  await button(page, "Add the task").click();
  await page.getByText("webhook-id").waitFor();
}

/** Takes a picture. Without the filters of the browser, flat colours take fewer bytes. */
export async function draw(page, path) {
  const format = { colorType: 2, filterType: 0, deflateLevel: 9, deflateStrategy: 0 };
  writeFileSync(path, PNG.sync.write(PNG.sync.read(await page.screenshot()), format));
}

/** In px: tables have all columns side by side. */
const WIDE = 1440;

/**
 * Fails if axe finds something, if the page is wider than the window, or hides a button; if the
 * controls in a row differ in height; or if a table of a wide page scrolls.
 */
export async function isAccessible(page, what) {
  // The policy of the page forbids scripts from elsewhere; the debugger's are exempt.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: `${axe};0` });
  await session.detach();
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document);
    return violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target}`));
  });
  assert.deepEqual(found, [], what);
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert(excess <= 0, `${what} is ${excess} px too wide`);
  // A table that is wider scrolls.
  const hidden = await page.evaluate(() =>
    [...document.querySelectorAll("main button")]
      .filter((one) => one.getBoundingClientRect().right > innerWidth)
      .map((one) => one.getAttribute("aria-label") ?? one.textContent),
  );
  assert.deepEqual(hidden, [], `${what} hides buttons`);
  const uneven = await page.evaluate(() => {
    const height = (one) => one.getBoundingClientRect().height;
    const heights = (form) => [...form.querySelectorAll("input, select, button")].map(height);
    const all = [...document.querySelectorAll(".find")].map(heights);
    return all.filter((heights) => new Set(heights).size > 1);
  });
  assert.deepEqual(uneven, [], `${what}: the heights of the controls in a row`);
  if (page.viewportSize().width < WIDE) return;
  const scrolls = await page.evaluate(() =>
    [...document.querySelectorAll(".scroll")]
      .filter((one) => one.scrollWidth > one.clientWidth)
      .map((one) => `${one.getAttribute("aria-label")}: ${one.scrollWidth - one.clientWidth} px`),
  );
  assert.deepEqual(scrolls, [], `${what}: these tables scroll`);
}
