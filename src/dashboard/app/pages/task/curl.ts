// The shell command that adds the same task again.
import type { Task } from "../../api/types";
import { token } from "../../state/token";

/** Characters that a terminal would obey, or not show. Each is written by its number. */
const INVISIBLE = /[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

const written = (value: unknown): string =>
  JSON.stringify(value).replace(
    INVISIBLE,
    (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** The text as one word of a POSIX shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Whether the token may not read the values of the headers, which are null then. */
export function hasHiddenOptions({ options }: Task): boolean {
  const { headers } = options as { headers?: Record<string, string | null> | null };
  return Object.values(headers ?? {}).includes(null);
}

/**
 * An add with the content of the task, byte for byte, and its options. It is due at once if the
 * task was due already. The debounce key is left out: with it, the command would replace a newer
 * task that waits. The command names the variable of the token, never the token.
 */
export function curlOf(topic: string, task: Task, now: number): string {
  const isLater = task.state === "scheduled" && task.due_ms > now;
  const body = written({
    topic,
    ...(isLater ? { timing_moment: task.due_ms / 1000 } : { delay: 0 }),
    mode: task.mode,
    ...task.options,
    content: task.content ?? "",
  });
  const words = [
    "curl -sS",
    quoted(new URL("delay/task/add", document.baseURI).href),
    "-H 'content-type: application/json'",
    ...(token.peek() === null ? [] : ['-H "Authorization: Bearer $DELAYD_TOKEN"']),
    `--data-binary ${quoted(body)}`,
  ];
  return words.join(" ");
}
