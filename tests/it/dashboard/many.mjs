// Ten thousand topics: the service searches, sorts and pages them, and the page reads few of them.
import assert from "node:assert/strict";
import { button, choose, input, link, open, withPage } from "./browser.mjs";

const LIST = "**/delay/topic/list";

const rows = (page) => page.locator("tbody tr").count();
const firstName = (page) => page.locator("tbody tr a").first().textContent();
const search = (page, text) => page.getByRole("searchbox").fill(text);

async function pagesAndSorts(page) {
  await open(page, "topics");
  await page.getByText("50 of 10,000 are shown.").waitFor();
  assert.equal(await rows(page), 50);
  assert.equal(await firstName(page), "topic-0");
  await link(page, "Next page").click();
  await link(page, "First page").waitFor();
  await page.getByText("50 of 10,000 are shown.").waitFor();
  assert.equal(await rows(page), 50);
  assert.notEqual(await firstName(page), "topic-0");
  await page.reload();
  await link(page, "First page").click();
  await link(page, "topic-0").waitFor();

  // A topic with two dead tasks comes first, wherever its name is. The order follows samples.
  await choose(page, "Order", "dead");
  // The service counts 512 topics a second.
  await page.getByText("The order follows counts").waitFor({ timeout: 3 * 60_000 });
  await page.locator("tbody tr").first().getByRole("link", { name: input.dead }).waitFor();
  const dead = page.locator("tbody tr").first().getByRole("cell").nth(6);
  assert.equal(await dead.textContent(), "2");
  assert((await page.evaluate(() => location.hash)).endsWith("sort=dead"));
}

async function searches(page) {
  await search(page, "topic-512");
  await page.getByText("11 of 11 are shown.").waitFor();
  assert.equal(await rows(page), 11);
  assert.equal(await page.evaluate(() => location.hash), "#/topics?match=topic-512&sort=dead");
  await search(page, "topic-999*");
  await page.getByText("11 of 11 are shown.").waitFor();
  await search(page, "nothing");
  await page.getByText("No topic matches.").waitFor();
  await search(page, "<b>");
  await page.getByRole("alert").waitFor();
}

/** An answer that comes late is not shown: its request is aborted. */
async function dropsALateAnswer(page) {
  await search(page, "");
  await page.getByText("50 of 10,000 are shown.").waitFor();
  const aborted = page.waitForEvent("requestfailed", (request) =>
    request.postDataJSON().match === "topic-7");
  const held = page.waitForRequest((request) =>
    request.url().endsWith("/topic/list") && request.postDataJSON().match === "topic-7");
  await page.route(LIST, (route) => {
    if (route.request().postDataJSON().match !== "topic-7") return route.continue();
  });
  await search(page, "topic-7");
  await held;
  await search(page, "topic-77");
  await page.getByText("50 of 111 are shown.").waitFor();
  await aborted;
  await page.unroute(LIST);
}

/** The service lists topics in at most 100 ms: the fastest of some calls, on a busy machine. */
async function listsQuickly(page) {
  const took = await page.evaluate(async () => {
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ sort: "pending", limit: 50, trend: true });
    let least = Infinity;
    for (let calls = 0; calls < 20; calls += 1) {
      const began = performance.now();
      const answer = await fetch("delay/topic/list", { method: "POST", headers, body });
      await answer.json();
      least = Math.min(least, performance.now() - began);
    }
    return least;
  });
  console.log(`a page of 10,000 topics: ${took.toFixed(1)} ms`);
  assert(took <= 100, `${took} ms`);
}

/** The instance notes a point of each topic once a minute. */
async function showsTrends(page) {
  await open(page, "topics");
  const trend = page.getByRole("img", { name: "Waiting tasks: first 1, now 1" });
  await trend.first().waitFor({ timeout: 3 * 60_000 });
}

/** Two topics have dead tasks of the same cause. A call that ended after some seconds goes on. */
async function readsTheCausesOfAllTopics(page) {
  await open(page, "dead");
  const seen = page.getByText(/[0-9] topics were looked at/);
  const all = "10,000 topics were looked at.";
  for (;;) {
    await seen.waitFor();
    const text = (await seen.textContent()).trim();
    if (text === all) break;
    await button(page, "Go on").click();
    await page.waitForFunction((text) => !document.body.innerText.includes(text), text);
  }
  assert.equal(await rows(page), 1);
  const cells = page.locator("tbody tr").getByRole("cell");
  assert.equal(await cells.nth(0).textContent(), "nacked");
  assert.equal(await cells.nth(2).textContent(), "3");
  assert.equal(await button(page, "Purge topic-5, nacked").count(), 0);
  await link(page, input.dead).waitFor();
  await link(page, "topic-5").click();
  await button(page, "Purge topic-5, nacked").waitFor();
}

await withPage(
  async (page) => {
    const limits = [];
    page.on("request", (request) => {
      if (request.url().endsWith("/topic/list")) limits.push(request.postDataJSON().limit);
    });
    await page.goto(input.url);
    await page.getByText("Live", { exact: true }).waitFor();
    await pagesAndSorts(page);
    await searches(page);
    await dropsALateAnswer(page);

    await search(page, "topic-512");
    await link(page, "topic-512").click();
    await page.getByRole("heading", { name: "Topic topic-512" }).waitFor();
    await link(page, "scheduled 1").click();
    await page.locator("tbody tr").first().waitFor();

    await open(page, "tasks?by=key&q=nothing");
    const half = "There are no such tasks. 5,000 topics were looked at.";
    await page.getByText(`${half} There are more.`).waitFor();
    await link(page, "Go on").click();
    await link(page, "First page").waitFor();
    await page.getByText(half).waitFor();
    assert.equal(await link(page, "Go on").count(), 0);

    await readsTheCausesOfAllTopics(page);
    await showsTrends(page);
    await listsQuickly(page);
    assert.deepEqual([...new Set(limits)], [50, 100], "no list of all topics");
  },
  // The search that is no part of a name.
  { expected: ["400 (Bad Request)"] },
);
