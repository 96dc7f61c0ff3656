// Every page and dialog in both themes and languages, wide and narrow: axe finds nothing, and
// nothing is wider than the window. It also takes the pictures of the documentation.
import { button, choose, draw, input, isAccessible, open, withPage } from "./browser.mjs";

const LOOKS = ["light", "dark"].flatMap((theme) =>
  ["en", "zh"].flatMap((language) => [1440, 360].map((width) => [theme, language, width])),
);

const { task, pictures } = input;
const PAGES = ["", "topics", "topics?match=o&sort=dead", "topics/orders"];
PAGES.push("tasks/orders?state=dead", "dead", "destinations", "destinations/message.call");
PAGES.push("schedules", "schedules/orders", "schedules/orders/daily");
PAGES.push("tasks?by=key&q=none", "tasks/orders?by=sn&q=message.call");
PAGES.push(`task/orders/${task}`, "add", "forecast", "system", "audit", "topics/none", "nothing");

/** The dialogs, and the English and Chinese names of their buttons. */
const DIALOGS = [
  ["topics/orders", "Delete all tasks", "删除所有任务"],
  ["topics/orders", "Edit the settings", "编辑设置"],
  ["topics/paused", "Resume", "恢复"],
  ["dead/orders", "Replay all", "全部重放"],
  ["tasks/orders", "Move all matching", "改期所有匹配的任务"],
  ["tasks/orders?state=dead", "Cancel all matching", "取消所有匹配的任务"],
  [`task/orders/${input.waiting}`, "Move", "改期"],
  ["schedules/orders", "Set a schedule", "设置周期计划"],
  ["schedules/orders/daily", "Delete the schedule", "删除周期计划"],
];

async function takesPictures(page) {
  await choose(page, "Times", "utc");
  for (const [file, theme, name, width, height] of [
    ["overview", "light", "", 1180, 1060],
    ["task", "light", `task/orders/${task}`, 1180, 900],
    ["dead-letters", "dark", "dead", 1240, 600],
    ["overview-narrow", "light", "", 390, 844],
    ["task-narrow", "dark", `task/orders/${task}`, 390, 844],
  ]) {
    // The choice of the theme is folded on a narrow page.
    await page.setViewportSize({ width: 1180, height });
    await open(page, "system");
    await choose(page, "Theme", theme);
    await page.setViewportSize({ width, height });
    // The graphs of the overview are drawn once they have the points of the past.
    const points = name === "" ? page.waitForResponse(/delay\/series/) : null;
    await open(page, name);
    await (await points)?.finished();
    await page.waitForTimeout(500);
    await draw(page, `${pictures}/${file}.png`);
  }
}

await withPage(
  async (page) => {
    await page.goto(input.url);
    await page.getByText("Live", { exact: true }).waitFor();
    if (pictures) await takesPictures(page);
    for (const [theme, language, width] of LOOKS) {
      const look = `${theme}, ${language}, ${width} px`;
      await page.evaluate(([theme, language]) => {
        localStorage.setItem("delayd.theme", theme);
        localStorage.setItem("delayd.language", language);
      }, [theme, language]);
      await page.setViewportSize({ width, height: 900 });
      await page.reload();
      await page.locator("nav").waitFor();
      for (const name of PAGES) {
        await open(page, name);
        await isAccessible(page, `#/${name}, ${look}`);
        if (name === "add") {
          await page.getByRole("radio", { name: /text|文本/ }).check();
          await isAccessible(page, `a time as text, ${look}`);
        }
      }
      for (const [name, english, chinese] of DIALOGS) {
        await open(page, name);
        await button(page, language === "en" ? english : chinese).click();
        await page.locator("dialog [data-loading]").waitFor({ state: "detached" });
        const ways = page.getByRole("dialog").getByRole("radio", { name: /text|文本/ });
        if ((await ways.count()) > 0) await ways.check();
        await isAccessible(page, `a dialog of #/${name}, ${look}`);
        await page.keyboard.press("Escape");
        await page.getByRole("dialog").waitFor({ state: "detached" });
      }
    }
  },
  // One of the topics does not exist.
  { expected: ["404 (Not Found)"] },
);
