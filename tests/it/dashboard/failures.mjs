// What the page says if the service refuses, is overloaded, or does not answer.
import { button, input, open, withPage } from "./browser.mjs";

const overloaded = {
  status: 503,
  contentType: "application/json",
  body: JSON.stringify({ dm_error: 2003, error_msg: "the store is away", request_id: "r-1" }),
};

await withPage(
  async (page) => {
    const fail = (path) => page.route(`**${path}`, (route) => route.fulfill(overloaded));
    await page.goto(input.url);
    await page.getByText("Live", { exact: true }).waitFor();

    await fail("/delay/topic/list");
    await open(page, "topics");
    const alert = page.getByRole("alert");
    await alert.getByText("The service cannot do this now. Try again later.").waitFor();
    await alert.getByText("The service says: the store is away").waitFor();
    await alert.getByText("Request r-1").waitFor();
    // The page asks again by itself.
    await page.unroute("**/delay/topic/list");
    await alert.waitFor({ state: "detached" });

    await fail("/delay/topic/pause");
    await button(page, "Pause orders").click();
    const dialog = page.getByRole("dialog");
    await button(dialog, "Pause").click();
    await dialog.getByText("The change is not confirmed.").waitFor();
    await page.unroute("**/delay/topic/pause");
    await button(dialog, "Pause").click();
    await dialog.waitFor({ state: "detached" });
    await page.locator(".badge", { hasText: "paused" }).waitFor();

    await open(page, "task/orders/1");
    await page.getByText("This does not exist, or no longer.").waitFor();

    // From here on nothing answers.
    process.kill(input.pid, "SIGKILL");
    await page.getByText("Connection lost").waitFor();
    await open(page, "destinations");
    await alert.getByText("The service does not answer. The page tries again.").waitFor();
    await open(page, "add");
    await page.getByRole("textbox", { name: "Topic" }).fill("orders");
    await button(page, "Add the task").click();
    await alert.getByText("The change is not confirmed.").waitFor();
  },
  { expected: ["503 (Service Unavailable)", "404 (Not Found)", "net::ERR_"] },
);
