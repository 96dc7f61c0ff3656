// Who the caller is, and what the caller may do.
import { effect, signal } from "@preact/signals";
import { call, CallError, isAbort } from "../api/client";
import type { WhoAmI } from "../api/types";
import { needsToken, token } from "./token";

export const who = signal<WhoAmI | null>(null);

/** Why `who` is unknown. */
export const whoError = signal<CallError | null>(null);

/** The clock of the service minus the clock of this machine, in ms. */
export const clockOffset = signal(0);

/** The time of the service, in Unix ms. */
export const serviceNow = (): number => Date.now() + clockOffset.peek();

let running: AbortController | null = null;

/** Reads `who` again. */
export async function askWho(): Promise<void> {
  running?.abort();
  const own = (running = new AbortController());
  try {
    const answer = await call("/delay/whoami", {}, own.signal);
    clockOffset.value = answer.now_ms - Date.now();
    who.value = answer;
    whoError.value = null;
  } catch (error) {
    if (isAbort(error) || own.signal.aborted) return;
    if (error instanceof CallError) whoError.value = error;
    if (error instanceof CallError && error.status === 401) who.value = null;
  }
}

/** Asks at the start, after each change of the token, and again while there is no answer. */
export function startSession(): void {
  effect(() => {
    token.value;
    if (!needsToken.value) void askWho();
  });
  setInterval(() => {
    if (!document.hidden && whoError.peek() !== null && !needsToken.peek()) void askWho();
  }, 3000);
}

type Scope = "produce" | "consume" | "view" | "admin";

/** Whether the token has one of the scopes. */
const hasScope = (...scopes: Scope[]): boolean =>
  scopes.some((scope) => who.value?.scopes.includes(scope) === true);

/** Whether the token covers the topic: `*` in a pattern stands for any characters. */
function covers(topic: string): boolean {
  const matches = (pattern: string) => {
    const [first = "", ...rest] = pattern.split("*");
    if (rest.length === 0) return pattern === topic;
    const last = rest.pop() ?? "";
    let at = first.length;
    if (!topic.startsWith(first)) return false;
    for (const part of rest) {
      const found = topic.indexOf(part, at);
      if (found < 0) return false;
      at = found + part.length;
    }
    return topic.length - last.length >= at && topic.endsWith(last);
  };
  return who.value?.topics.some(matches) === true;
}

/** What the token may do. The service refuses everything else, whatever the page shows. */
export const may = {
  readAll: () => who.value?.all_topics === true && hasScope("view", "admin"),
  listTopics: () => hasScope("view", "admin"),
  readTopic: (topic: string) => hasScope("view", "admin") && covers(topic),
  changeTopic: (topic: string) => hasScope("admin") && covers(topic),
  changeTasks: (topic: string) => hasScope("produce") && covers(topic),
  readOutcomes: () => hasScope("produce", "consume", "admin"),
  searchContents: () => hasScope("admin"),
  changeDestinations: () => who.value?.all_topics === true && hasScope("admin"),
  add: () => hasScope("produce"),
  seeTasks: () => hasScope("produce", "consume", "view", "admin"),
};
