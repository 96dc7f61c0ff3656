// Ten thousand topics: the page shows some of them, and finds the others.
import assert from "node:assert/strict";
import { button, input, link, open, withPage } from "./browser.mjs";

const rows = (page) => page.locator("tbody tr").count();

await withPage(async (page) => {
  await page.goto(input.url);
  await page.getByText("Live", { exact: true }).waitFor();
  await open(page, "topics");
  await page.getByText("200 of 10,000 are shown.").waitFor();
  assert.equal(await rows(page), 200);
  await button(page, "Show more").click();
  await page.getByText("400 of 10,000 are shown.").waitFor();
  assert.equal(await rows(page), 400);

  // The heading sorts all, not only those that are shown.
  const heading = page.locator("th button").first();
  await heading.click();
  await heading.click();
  await link(page, "topic-9999").waitFor();

  await page.getByRole("searchbox").fill("topic-512");
  await page.getByText("11 of 10,000 are shown.").waitFor();
  assert.equal(await rows(page), 11);
  await link(page, "topic-512").click();
  await page.getByRole("heading", { name: "Topic topic-512" }).waitFor();
  await link(page, "scheduled 1").click();
  await page.locator("tbody tr").first().waitFor();

  await open(page, "dead");
  await page.getByText("There are too many topics to read all: name one.").waitFor();
});
