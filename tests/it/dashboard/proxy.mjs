// Behind a proxy, below a path prefix, over HTTP/1.1, at an address without TLS: the page is live,
// and so many tabs are open that each with a stream of its own would leave no connection.
import assert from "node:assert/strict";
import { button, input, isLoaded, link, open, withPage } from "./browser.mjs";

/** Browsers open at most six connections to a host. */
const TABS = 7;

const isLive = async (page) => {
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByText("Nothing is wrong.").waitFor();
};

/** A sample arrives that was not there before. */
const getsSamples = (page) =>
  page.evaluate(() => {
    const shown = document.querySelector("canvas")?.closest("figure");
    const before = shown.textContent;
    return new Promise((done) => {
      const observer = new MutationObserver(() => {
        if (shown.textContent === before) return;
        observer.disconnect();
        done();
      });
      observer.observe(shown, { subtree: true, childList: true, characterData: true });
    });
  });

async function tabsShareAStream(page) {
  const isStream = (request) => request.url().endsWith("/delay/live");
  const streams = new Set();
  page.context().on("request", (request) => isStream(request) && streams.add(request));
  for (const end of ["requestfinished", "requestfailed"]) {
    page.context().on(end, (request) => streams.delete(request));
  }
  const tabs = [];
  for (let at = 0; at < TABS; at += 1) {
    const tab = await page.context().newPage();
    await tab.goto(input.url);
    await isLive(tab);
    tabs.push(tab);
  }
  assert.equal(streams.size, 0, "the first tab has the stream");
  for (const tab of tabs) await getsSamples(tab);
  for (const tab of tabs) {
    await open(tab, "system");
    await tab.getByText("answers this page").waitFor();
    await open(tab, "");
  }

  // Without the first tab, one of the others reads the stream.
  const taken = page.context().waitForEvent("request", isStream);
  await page.close();
  await taken;
  for (const tab of tabs) {
    await isLive(tab);
    await getsSamples(tab);
  }
  // If two took it in the same moment, one of them stops.
  for (let seconds = 0; streams.size !== 1; seconds += 1) {
    assert(seconds < 60, `${streams.size} streams`);
    await getsSamples(tabs[0]);
  }
}

/** Browsers have `navigator.clipboard` only at safe addresses. */
async function copiesWithoutTls(page) {
  await open(page, `task/orders/${input.task}`);
  assert.equal(await page.evaluate(() => window.isSecureContext), false);
  await button(page, "Copy as curl").click();
  await button(page, "Copied").waitFor();
  await open(page, "add");
  const field = page.getByLabel("Content");
  await field.fill("");
  await field.press("Control+V");
  const command = await field.inputValue();
  assert(command.includes(`'${input.url}delay/task/add'`), command);
}

await withPage(
  async (page) => {
    await page.goto(input.url);
    await isLive(page);
    await isLoaded(page);
    assert.equal(await page.locator("canvas").count(), 4);
    await getsSamples(page);
    const { nextHopProtocol } = await page.evaluate(() =>
      performance.getEntriesByType("navigation")[0].toJSON(),
    );
    assert.equal(nextHopProtocol, "http/1.1");
    await link(page, "Topics").click();
    await link(page, "orders").click();
    await page.getByRole("heading", { name: "Topic orders" }).waitFor();
    await copiesWithoutTls(page);
    await tabsShareAStream(page);
  },
  { args: [`--host-resolver-rules=MAP ${input.host} 127.0.0.1`] },
);
