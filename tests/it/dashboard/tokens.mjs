// A service with tokens: the page asks for one, says if it is unknown, and shows what it may do.
import assert from "node:assert/strict";
import { input, isAccessible, open, withPage } from "./browser.mjs";

const useToken = async (page, token, isKept) => {
  await page.getByLabel("Access token", { exact: true }).fill(token);
  if (isKept) await page.getByRole("checkbox").check();
  await page.getByRole("button", { name: "Use the token" }).click();
};

const hasPage = async (page, name) =>
  (await page.getByRole("link", { name, exact: true }).count()) === 1;

const kept = (page) => page.evaluate(() => JSON.stringify([sessionStorage, localStorage]));

await withPage(
  async (page) => {
    await page.goto(input.url);
    await page.getByText("This service needs an access token").waitFor();
    await isAccessible(page, "the question for the token");
    await useToken(page, "wrong", false);
    await page.getByText("The service does not know this token.").waitFor();
    await useToken(page, "viewer", false);
    await page.getByText("Live", { exact: true }).waitFor();
    assert(await hasPage(page, "Overview"));
    assert(!(await hasPage(page, "Add a task")));
    assert(!(await kept(page)).includes("viewer"), "the token is only in memory");
    assert.equal(await page.evaluate(() => document.cookie), "");
    await open(page, "destinations");
    await page.locator("main").getByText("The configuration names no service").waitFor();

    await page.reload();
    await useToken(page, "viewer", true);
    await page.getByText("Live", { exact: true }).waitFor();
    await page.reload();
    await page.getByText("Live", { exact: true }).waitFor();
    await open(page, "system");
    await page.getByRole("button", { name: "Forget the token" }).click();
    await page.getByText("This service needs an access token").waitFor();
    assert(!(await kept(page)).includes("viewer"), "the token is forgotten");

    await useToken(page, "adder", false);
    await page.getByRole("link", { name: "Add a task", exact: true }).waitFor();
    assert(!(await hasPage(page, "Overview")));
    await page.evaluate(() => (location.hash = "#/audit"));
    await page.getByText("covers all topics").waitFor();
  },
  // Chromium reports each 401 in the console.
  { expected: ["401 (Unauthorized)"] },
);
