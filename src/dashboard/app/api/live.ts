// The live stream: one for all tabs that are shown. Hidden tabs have none.
import { computed, effect, signal } from "@preact/signals";
import { isAbort, send } from "./client";
import { shareStream, type Beat } from "./tabs";
import type { Overview } from "./types";
import { isHidden } from "../state/clock";
import { dialog } from "../state/dialog";
import { askWho, may, serviceNow } from "../state/session";
import { needsToken } from "../state/token";

export type Connection = "off" | "connecting" | "live" | "lost" | "hidden";

/** The longest silence, in ms, before the stream counts as lost. */
const SILENCE = 20_000;
const LONGEST_WAIT = 10_000;

const latest = signal<Overview | null>(null);
const frozen = signal<Overview | null>(null);

/** The last overview; while a dialog is open, the one from before. */
export const overview = computed(() => (dialog.value === null ? latest.value : frozen.value));

/** The last overview, also while a dialog is open. */
export const newest = computed(() => latest.value);

export const connection = signal<Connection>("off");

/** Counts the streams: series that were read before have a gap. */
export const streams = signal(0);

/** When the last sample was taken, by the clock of this machine. */
const sampledAt = signal<number | null>(null);

/** The age of the last sample in ms, at the local time `now`. */
export const sampleAge = (now: number): number | null =>
  sampledAt.value === null ? null : Math.max(0, now - sampledAt.value);

function take(event: Overview): void {
  const before = latest.peek();
  if (event.at_ms === 0) {
    sampledAt.value = null;
  } else if (before === null) {
    sampledAt.value = Date.now() - Math.max(0, serviceNow() - event.at_ms);
  } else if (event.at_ms !== before.at_ms) {
    // The clocks of store and browser may differ, so only the change counts.
    sampledAt.value = Date.now();
  }
  latest.value = event;
}

/** The data of one event; null for comments. */
function dataOf(event: string): string | null {
  const lines = event.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length === 0 ? null : lines.map((line) => line.slice(5)).join("\n");
}

async function read(signal: AbortSignal, heard: () => void): Promise<void> {
  const response = await send("/delay/live", "{}", signal);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  connection.value = "live";
  streams.value += 1;
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    const events = (rest + value).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) {
      const data = dataOf(event);
      if (data !== null) take(JSON.parse(data) as Overview);
    }
  }
}

/** Reads streams, one after the other, until the signal. */
async function run(stop: AbortSignal): Promise<void> {
  let wait = 1000;
  while (!stop.aborted) {
    const own = new AbortController();
    const end = () => own.abort();
    stop.addEventListener("abort", end);
    let timer = setTimeout(end, SILENCE);
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(end, SILENCE);
      wait = 1000;
    };
    try {
      await read(own.signal, heard);
    } catch (error) {
      if (!isAbort(error)) wait = Math.min(wait * 2, LONGEST_WAIT);
    }
    clearTimeout(timer);
    stop.removeEventListener("abort", end);
    if (stop.aborted) return;
    connection.value = "lost";
    await new Promise((resolve) => setTimeout(resolve, wait));
    // Another instance may answer now, and the token may have lost its scopes.
    if (!stop.aborted) void askWho();
  }
}

/** Takes over what the tab has read that leads. */
function follow({ connection: state, overview }: Beat): void {
  if (state === "live" && connection.peek() !== "live") streams.value += 1;
  connection.value = state;
  if (overview !== null) take(overview);
}

function lead(): () => void {
  // The last state is that of the tab that led before.
  connection.value = "connecting";
  const stop = new AbortController();
  void run(stop.signal);
  return () => stop.abort();
}

/** Is live while the tab is shown and the token may read the stream. */
export function startLive(): void {
  const wanted = computed(() => may.readAll() && !needsToken.value);
  effect(() => {
    if (dialog.value === null) frozen.value = latest.value;
  });
  effect(() => {
    if (!wanted.value || isHidden.value) {
      connection.value = wanted.value ? "hidden" : "off";
      return;
    }
    connection.value = "connecting";
    const now = () => ({ connection: connection.peek(), overview: latest.peek() });
    const tab = shareStream({ lead, now, follow });
    const tellChanges = effect(() => {
      connection.value;
      latest.value;
      tab.tell();
    });
    return () => {
      tellChanges();
      tab.leave();
    };
  });
}
