// A topic's settings as the form has them, and the request that changes them.
import type { RequestOf, Topic } from "../../api/types";

/** The settings that are parts of another one, and so are reset together. */
const PARTS = {
  retry: ["max_attempts", "backoff", "final_statuses"],
  history: ["keep", "max"],
} as const;

const SINGLE = [
  "timeout", "mode", "rate", "concurrency", "quota", "misfire", "lateness_objective",
] as const;

/** All settings, in the order of the form. */
export const SETTINGS = [...PARTS.retry, ...SINGLE, ...PARTS.history] as const;

export type Setting = (typeof SETTINGS)[number];

/** Each setting as text; "" if it follows the configuration. */
export type Draft = Record<Setting, string>;

const UNITS: [string, number][] = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]];

/** A duration in the largest unit without a fraction. The service writes ms. */
function shortest(span: string): string {
  const ms = parseInt(span, 10);
  const [unit, length] = UNITS.find(([, length]) => ms > 0 && ms % length === 0) ?? ["ms", 1];
  return `${ms / length}${unit}`;
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "object") {
    return JSON.stringify(value, (_, part: unknown) =>
      typeof part === "object" ? part : isSpan(part) ? shortest(part) : part,
    );
  }
  return isSpan(value) ? shortest(value) : String(value);
}

const isSpan = (value: unknown): value is string =>
  typeof value === "string" && /^\d+ms$/.test(value);

/** All settings by name, those that are parts of another one as well. */
export const valuesOf = ({ retry, history, ...rest }: Topic["policy"]): Record<string, unknown> => ({
  ...retry, ...history, ...rest,
});

export function draftOf(policy: Topic["policy"]): Draft {
  const values = valuesOf(policy);
  const texts = SETTINGS.map((name) => [name, textOf(values[name])]);
  return Object.fromEntries(texts) as Draft;
}

/** The kinds of text that the form reads. Of all others, the service says what is wrong. */
const KINDS: Partial<Record<Setting, Fault>> = {
  max_attempts: "number",
  concurrency: "number",
  quota: "number",
  max: "number",
  final_statuses: "numbers",
  backoff: "object",
};

/** What a text is not. */
export type Fault = "number" | "numbers" | "object";

const isWhole = (text: string): boolean => /^\d{1,15}$/.test(text);

/** The value of a field with some text; undefined if the text is of another kind. */
function valueOf(name: Setting, text: string): unknown {
  switch (KINDS[name]) {
    case "number":
      return isWhole(text) ? Number(text) : undefined;
    case "numbers": {
      const parts = text.split(",").map((part) => part.trim());
      return parts.every(isWhole) ? parts.map(Number) : undefined;
    }
    case "object":
      return objectOf(text);
    default:
      return text;
  }
}

function objectOf(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** What is wrong with a field. */
export function faultOf(name: Setting, text: string): Fault | undefined {
  const isRead = text.trim() === "" || valueOf(name, text.trim()) !== undefined;
  return isRead ? undefined : KINDS[name];
}

export const areChanged = (before: Draft, now: Draft): boolean =>
  SETTINGS.some((name) => now[name].trim() !== before[name]);

/**
 * The request for what differs, so that a setting that somebody else changes meanwhile stays. The
 * service resets first, and then sets what is given.
 */
export function requestOf(
  topic: string,
  before: Draft,
  now: Draft,
): RequestOf<"/delay/topic/set"> {
  const reset: string[] = [];
  const changed = (names: readonly Setting[], whole: string) => {
    const differ = names.filter((name) => now[name].trim() !== before[name]);
    const isReset = differ.some((name) => now[name].trim() === "");
    if (isReset) reset.push(whole);
    const given = (isReset ? names : differ).filter((name) => now[name].trim() !== "");
    return Object.fromEntries(given.map((name) => [name, valueOf(name, now[name].trim())]));
  };
  const parts = Object.entries(PARTS).map(([whole, names]) => [whole, changed(names, whole)]);
  const given = parts.filter(([, values]) => Object.keys(values as object).length > 0);
  const single = SINGLE.map((name) => changed([name], name));
  return Object.assign({ topic }, Object.fromEntries(given), ...single, reset.length > 0 && { reset });
}
