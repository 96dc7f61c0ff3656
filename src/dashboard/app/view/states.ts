import type { TaskState } from "../api/types";

/** In the order of a task's life. */
export const TASK_STATES: TaskState[] = [
  "scheduled",
  "leased",
  "delivered",
  "dead",
  "cancelled",
  "expired",
];

/** Whether a task of this state waits for nothing any more. */
export const hasEnded = (state: TaskState): boolean => state !== "scheduled" && state !== "leased";
