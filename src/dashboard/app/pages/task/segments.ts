// The parts of a task's life, in time order, as far as its times and its log tell them.
import type { Attempt, Task } from "../../api/types";
import { hasEnded } from "../../view/states";

/**
 * `waited`: for its due time. `blocked`: it was due, and no attempt ran. `call`: an attempt ran.
 * `failed`: an attempt failed.
 * `backoff`: from the end of an attempt until the next one is due, or began, if the log does not
 * say when it was due. `rest`: an attempt has no entry in the log, so its begin is not known.
 */
export type Kind = "waited" | "blocked" | "call" | "failed" | "backoff" | "rest";

export interface Segment {
  kind: Kind;
  from: number;
  to: number;
  /** Of `call` and `failed`. */
  attempt?: number;
}

/** `now` is the time of the service. */
export function segmentsOf(task: Task, now: number): Segment[] {
  const { created_ms, due_ms, finished_ms, state, attempts, log } = task;
  const end = finished_ms ?? now;
  const found: Segment[] = [];
  const add = (kind: Kind, from: number, to: number, attempt?: number) => {
    const until = Math.min(to, end);
    if (until <= from) return;
    found.push({ kind, from, to: until, ...(attempt !== undefined && { attempt }) });
  };
  // Of a scheduled task with attempts, the due time is that of the next one.
  const isRetry = state === "scheduled" && attempts > 0;
  const firstDue = Math.max(created_ms, isRetry ? created_ms : due_ms);
  const sorted = [...log].sort((one, other) => one.started_ms - other.started_ms);
  let at = created_ms;
  let before: Attempt | undefined;
  /** From the end of the attempt before, until `to`. `after`: what follows its backoff. */
  const pause = (to: number, after: Kind) => {
    const wait = before?.wait_ms;
    const due = wait == null ? to : Math.min(at + wait, to);
    add("backoff", at, due);
    add(after, due, to);
  };
  for (const note of sorted) {
    const { attempt, started_ms, duration_ms } = note;
    if (attempt === 1 && !isRetry) {
      add("waited", at, Math.min(firstDue, started_ms));
      add("blocked", Math.max(at, firstDue), started_ms);
    } else if (attempt === 1) {
      add("waited", at, started_ms);
    } else {
      pause(started_ms, before?.attempt === attempt - 1 ? "blocked" : "rest");
    }
    // Only the last attempt can be good. The log also has attempts from before a replay.
    const isLast = attempt === attempts && started_ms >= due_ms && note === sorted.at(-1);
    const isGood = isLast && note.wait_ms == null && ["delivered", "leased"].includes(state);
    add(isGood ? "call" : "failed", started_ms, started_ms + duration_ms, attempt);
    at = Math.max(at, started_ms + duration_ms);
    before = note;
  }
  const logged = before?.attempt ?? 0;
  if (isRetry) {
    add("backoff", at, due_ms);
    add("blocked", Math.max(at, due_ms), now);
  } else if (logged === 0) {
    add("waited", at, firstDue);
    add(attempts === 0 ? "blocked" : "rest", Math.max(at, firstDue), end);
  } else if (attempts > logged && before?.wait_ms != null) {
    pause(end, "rest");
  } else if (attempts > logged || !hasEnded(state)) {
    add("rest", at, end);
  }
  return found;
}
