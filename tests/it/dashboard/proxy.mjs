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
async function getsSamples(page) {
  const graph = page.locator("figure.chart").first();
  const before = await graph.textContent();
  const isNew = (before) => document.querySelector("figure.chart").textContent !== before;
  await page.waitForFunction(isNew, before, { polling: 100 });
}

/** The streams that are open, of all tabs that are open. */
function recordStreams(context) {
  const streams = new Set();
  context.on("request", (request) => {
    if (request.url().endsWith("/delay/live")) streams.add(request);
  });
  for (const end of ["requestfinished", "requestfailed"]) {
    context.on(end, (request) => streams.delete(request));
  }
  return () => [...streams].filter((request) => !request.frame().page().isClosed());
}

/** Waits until one tab has a stream. If several took it in the same moment, all others stop. */
async function tabWithTheStream(streams, tab) {
  for (let samples = 0; streams().length !== 1; samples += 1) {
    assert(samples < 60, `${streams().length} streams`);
    await getsSamples(tab);
  }
  return streams()[0].frame().page();
}

async function tabsShareAStream(page, streams) {
  const tabs = [page];
  await open(page, "");
  await isLive(page);
  while (tabs.length <= TABS) {
    const tab = await page.context().newPage();
    await tab.goto(input.url);
    await isLive(tab);
    tabs.push(tab);
  }
  const leader = await tabWithTheStream(streams, page);
  for (const tab of tabs) await getsSamples(tab);
  for (const tab of tabs) {
    await open(tab, "system");
    await tab.getByText("answers this page").waitFor();
    await open(tab, "");
  }

  // Without that tab, one of the others reads the stream.
  await leader.close();
  const others = tabs.filter((tab) => tab !== leader);
  for (const tab of others) {
    await isLive(tab);
    await getsSamples(tab);
  }
  await tabWithTheStream(streams, others[0]);
}

/** Browsers have `navigator.clipboard` only at safe addresses. */
async function copiesWithoutTls(page) {
  await open(page, `task/orders/${input.task}`);
  assert.equal(await page.evaluate(() => window.isSecureContext), false);
  // The word stands there for two seconds, so the page looks for it before the click.
  await Promise.all([button(page, "Copied").waitFor(), button(page, "Copy as curl").click()]);
  await open(page, "add");
  const field = page.getByLabel("Content");
  await field.fill("");
  await field.press("Control+V");
  const command = await field.inputValue();
  assert(command.includes(`'${input.url}delay/task/add'`), command);
}

await withPage(
  async (page) => {
    const streams = recordStreams(page.context());
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
    await tabsShareAStream(page, streams);
  },
  { args: [`--host-resolver-rules=MAP ${input.host} 127.0.0.1`] },
);
