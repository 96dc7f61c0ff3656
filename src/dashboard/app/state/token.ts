// The access token: in memory, or in sessionStorage if the user wants that. Never in a cookie or
// an address.
import { signal } from "@preact/signals";

const KEY = "delayd.token";

function remembered(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** The token that calls carry. */
export const token = signal<string | null>(remembered());

/** Whether a call was answered 401, so that the page asks for a token. */
export const needsToken = signal(false);

/** Whether the token that was tried last is unknown to the service. */
export const wasRefused = signal(false);

/** Notes that the service answered 401 to this token. */
export function tokenRefused(sent: string | null): void {
  if (sent !== token.peek()) return;
  wasRefused.value = sent !== null;
  needsToken.value = true;
}

/** Uses a token. `remember` keeps it until the tab is closed. */
export function useToken(text: string | null, remember: boolean): void {
  token.value = text;
  needsToken.value = false;
  try {
    if (text !== null && remember) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage it stays in memory.
  }
}
