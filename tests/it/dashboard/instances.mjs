// Two instances: the one that answers makes no calls, and the breaker of the other is open.
import { badge, input, isAccessible, link, open, withPage } from "./browser.mjs";

const { url, id } = input;
const TEXTS = {
  en: { on: "on ", each: "On each instance", open: "open", failing: "Failing destinations" },
  zh: { on: "位于 ", each: "各实例的状态", open: "打开", failing: "调用失败的目的地" },
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
      await isAccessible(page, `#/destinations/message.call, ${look}`);
      await open(page, "system");
      await page.locator("main tbody tr").filter({ hasText: id }).waitFor();
      if (width > 1000) await page.getByText(texts.failing).waitFor();
      await isAccessible(page, `#/system, ${look}`);
    }
  }
});
