// A browser with one page, which records every error of the page. The arguments of a script are the
// folder of the dashboard's sources, where npm installed the libraries, and the input as JSON.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [, , sources, argument] = process.argv;
export const input = JSON.parse(argument);

const require = createRequire(`${sources}/package.json`);
const { chromium } = require("playwright-core");
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

/** Runs `steps` with a page, and fails if the page had an error. */
export async function withPage(steps, { expected = [] } = {}) {
  const executablePath = process.env.CHROMIUM ?? PROGRAMS.find(existsSync);
  assert(executablePath, "chromium is not installed; CHROMIUM may name it");
  const browser = await chromium.launch({ executablePath, args: ARGUMENTS });
  try {
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, locale: "en" });
    page.setDefaultTimeout(10_000);
    const errors = [];
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("console", (message) => {
      const isExpected = expected.some((text) => message.text().includes(text));
      const isBad = ["error", "warning"].includes(message.type());
      if (isBad && !isExpected) errors.push(message.text());
    });
    await steps(page);
    assert.deepEqual(errors, [], "the console of the page");
  } finally {
    await browser.close();
  }
}

/** Opens a page of the dashboard by its hash. */
export async function open(page, name) {
  await page.evaluate((name) => (location.hash = `#/${name}`), name);
  await page.locator("nav a[aria-current=page]").waitFor();
  await page.waitForTimeout(150);
}

export const choose = (page, label, value) => page.getByLabel(label).selectOption(value);

/** Fails if axe finds something, or if the page is wider than the window. */
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
}
