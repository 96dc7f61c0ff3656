// What the user's last action did, in a sentence that stays until the page changes.
import { signal } from "@preact/signals";

export const notice = signal("");

let staysOnce = false;

/** Shows a sentence. `isForNextPage`: the action also opens another page. */
export function say(text: string, isForNextPage = false): void {
  notice.value = text;
  staysOnce = isForNextPage;
}

addEventListener("hashchange", () => {
  if (!staysOnce) notice.value = "";
  staysOnce = false;
});
