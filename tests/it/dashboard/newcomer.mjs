// What a new user tries without reading: adds a task and watches it fire, then lets one fail and
// die, finds it from the overview, and replays it.
import { addTask, badge, button, confirm, input, link, open, says, withPage } from "./browser.mjs";

await withPage(async (page) => {
  await page.goto(input.url);
  await page.getByText("Live", { exact: true }).waitFor();

  await link(page, "Add a task").click();
  await page.getByRole("textbox", { name: "Topic" }).fill("hello");
  await page.getByLabel("Delay", { exact: true }).fill("1h");
  await button(page, "Add the task").click();
  await badge(page, "scheduled").waitFor();
  await button(page, "Run now").click();
  await confirm(page, "Run now");
  await badge(page, "delivered").waitFor();

  const content = '{"sn": "message.call", "url": "/breaks"}';
  await addTask(page, { topic: "hello", delay: "0s", content, attempts: "1" });
  await badge(page, "dead").waitFor();
  await page.getByText("500 Internal Server Error").first().waitFor();

  await link(page, "Overview").click();
  await link(page, "1 task is dead.").click();
  await page.getByRole("cell", { name: "500 Internal Server Error", exact: true }).waitFor();
  const task = await page.getByRole("row").nth(1).getByRole("link").last().textContent();
  await page.getByRole("button", { name: "Replay hello, 500" }).click();
  await page.getByText("Dry run: 1 task would be replayed.").waitFor();
  await confirm(page, "Replay");
  await says(page, "1 task was replayed.");
  await page.getByText("There are no dead letters.").waitFor();

  await open(page, `task/hello/${task}`);
  await badge(page, "delivered").waitFor();
});
