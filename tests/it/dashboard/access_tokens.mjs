// A service without an OAuth access token: the overview and the pages of destinations say so.
import assert from "node:assert/strict";
import { badge, choose, input, link, open, withPage } from "./browser.mjs";

const { url, why } = input;
const NO_TOKEN = "no access token";
const sentence = "shop is not called, because there is no OAuth access token for it. 1 task waits.";

const row = (page) => page.locator("main tbody tr").filter({ has: link(page, "shop") });

async function seesThatItIsMissing(page) {
  await page.locator("li", { has: link(page, sentence) }).getByText(why).waitFor();
  await link(page, sentence).click();
  await row(page).locator(".badge", { hasText: NO_TOKEN }).waitFor();
  assert.equal(await row(page).locator(".badge", { hasText: "ready" }).count(), 0);
  // How late the others are called.
  await page.locator("[data-unharmed]").waitFor();
  await link(page, "shop").click();
  await badge(page, NO_TOKEN).waitFor();
  const field = page.locator(".field", { hasText: "Why there is no OAuth access token" });
  await field.getByText(why, { exact: true }).waitFor();
  await page.locator("[data-unharmed]").waitFor();
  await choose(page, "Language", "zh");
  await badge(page, "没有访问令牌").waitFor();
  await open(page, "");
  await page.getByText("shop 没有 OAuth 访问令牌，因此不会被调用。1 个任务在等待。").waitFor();
}

async function seesThatItIsThere(page) {
  await page.getByText("Nothing is wrong.").waitFor();
  await open(page, "destinations");
  await row(page).locator(".badge", { hasText: "ready" }).waitFor();
  assert.equal(await page.getByText(NO_TOKEN).count(), 0);
  await open(page, "destinations/shop");
  await badge(page, "ready").waitFor();
  assert.equal(await page.getByText("OAuth").count(), 0);
}

await withPage(async (page) => {
  await page.goto(url);
  await page.getByText("Live", { exact: true }).waitFor();
  await (why === null ? seesThatItIsThere(page) : seesThatItIsMissing(page));
});
