// What the user's last action did, in a sentence that stays until the page changes.
import { signal } from "@preact/signals";
import type { CallError } from "../api/client";

export const notice = signal("");

/** Why an action failed after its dialog was closed, or its page left. */
export const lateFailure = signal<{ action: string; error: CallError } | null>(null);

let staysOnce = false;

/** Shows a sentence. `isForNextPage`: the action also opens another page. */
export function say(text: string, isForNextPage = false): void {
  notice.value = text;
  staysOnce = isForNextPage;
}

/** Removes a sentence that does not hold any more. */
export function unsay(text: string): void {
  if (notice.peek() === text) notice.value = "";
}

addEventListener("hashchange", () => {
  if (!staysOnce) {
    notice.value = "";
    lateFailure.value = null;
  }
  staysOnce = false;
});
