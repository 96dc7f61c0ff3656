// Two instances: the one that answers makes no calls, and the breaker of the other is open.
import {
  badge, button, confirm, input, isAccessible, link, open, says, withPage,
} from "./browser.mjs";

const { url, id } = input;
const TEXTS = {
  en: {
    on: "on ", each: "On each instance", open: "open", failing: "Failing destinations",
    fails: "failing", leased: "leased", hold: "Hold", probe: "Probe now",
    heard: "All instances have heard of the probe of message.call.",
  },
  zh: {
    on: "位于 ", each: "各实例的状态", open: "打开", failing: "调用失败的目的地",
    fails: "调用失败", leased: "处理中", hold: "暂停调用", probe: "立即探测",
    heard: "所有实例都已收到对 message.call 的探测。",
  },
};

await withPage(async (page) => {
  await page.goto(url);
  for (const [language, texts] of Object.entries(TEXTS)) {
    for (const width of [1440, 360]) {
      const look = `${language}, ${width} px`;
      await page.evaluate((to) => localStorage.setItem("delayd.language", to), language);
      await page.setViewportSize({ width, height: 900 });
      await page.reload();
      await page.locator("nav").waitFor();
      await open(page, "destinations");
      const row = page.locator("main tbody tr").filter({ has: link(page, "message.call") });
      await row.getByText(texts.on).filter({ hasText: id }).waitFor();
      await isAccessible(page, `#/destinations, ${look}`);
      await link(page, "message.call").click();
      await page.getByRole("heading", { name: texts.each }).waitFor();
      const one = page.locator("main tbody tr").filter({ hasText: id });
      await one.locator(".badge", { hasText: texts.open }).waitFor();
      await badge(page, texts.open).waitFor();
      await button(page, `${texts.hold} message.call`).waitFor();
      await button(page, `${texts.probe} message.call`).click();
      await confirm(page, texts.probe);
      await says(page, texts.heard);
      await says(page, id);
      await isAccessible(page, `#/destinations/message.call, ${look}`);
      await open(page, "forecast");
      const forecast = page.locator("main tbody tr", { hasText: "message.call" });
      await forecast.locator(".badge", { hasText: texts.fails }).waitFor();
      await open(page, "");
      await page.locator("dt", { hasText: texts.leased }).waitFor();
      await row.locator(".badge", { hasText: texts.fails }).waitFor();
      await open(page, "system");
      await page.locator("main tbody tr").filter({ hasText: id }).waitFor();
      if (width > 1000) await page.getByText(texts.failing).waitFor();
      await isAccessible(page, `#/system, ${look}`);
    }
  }
});
