// What delays tasks: a consumer that forgot what it pulled, and a receiver that is slow or fails
// while its circuit breaker is closed. The overview names the cause and leads to the tasks.
import { input, isAccessible, link, open, withPage } from "./browser.mjs";

await withPage(async (page) => {
  await page.goto(input.url);
  await page.getByText("Live", { exact: true }).waitFor();
  const forgotten = page.getByRole("link", { name: /no consumer pulls them.* forgot them/ });
  await forgotten.waitFor();
  const failed = page.locator("li", { hasText: "because receivers are slow or fail" });
  await failed.getByText(/slow: Last error, .+ ago: 500 Internal Server Error/).waitFor();
  await isAccessible(page, "the overview");

  await link(page, "Its overdue tasks").click();
  await link(page, String(input.task)).waitFor();
  await open(page, "");
  await forgotten.click();
  await page.getByRole("heading", { name: "pulled" }).waitFor();
  await page.locator("main .state .badge", { hasText: "overdue" }).waitFor();
});
