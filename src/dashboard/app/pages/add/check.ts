// Checks the form, and writes the request. The content is part of the request exactly as it was
// typed: parsing and writing it again would round large numbers.
import { t } from "../../text";

export interface Draft {
  topic: string;
  isAt: boolean;
  delay: string;
  /** As `<input type="datetime-local">` has it: without a zone. */
  time: string;
  content: string;
  key: string;
}

export type Faults = Partial<Record<"topic" | "delay" | "time" | "content" | "key", string>>;

/** The moment of a local input, in Unix ms; NaN if it is incomplete. */
export const timeOf = (time: string, isUtc: boolean): number =>
  Date.parse(isUtc && time !== "" ? `${time}Z` : time);

/** The parsed content; null if it is no JSON object. */
export function contentOf(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function faultOfContent(text: string): string | undefined {
  try {
    return isObject(JSON.parse(text)) ? undefined : t().add.notObject;
  } catch (error) {
    return t().add.badJson(error instanceof Error ? error.message : "");
  }
}

/** What is wrong with each field. */
export function faultsOf(draft: Draft, isUtc: boolean): Faults {
  const texts = t().add;
  const faults: Faults = {};
  if (!/^[A-Za-z0-9._:-]{1,128}$/.test(draft.topic)) faults.topic = texts.badTopic;
  if (draft.isAt) {
    if (Number.isNaN(timeOf(draft.time, isUtc))) faults.time = texts.badTime;
  } else if (!/^\d+(ms|s|m|h|d)$/.test(draft.delay.trim())) {
    faults.delay = texts.badDelay;
  }
  const content = faultOfContent(draft.content);
  if (content !== undefined) faults.content = content;
  if (new TextEncoder().encode(draft.key).length > 256) faults.key = texts.badKey;
  return faults;
}

/** The body of the request. */
export function bodyOf(draft: Draft, isUtc: boolean): string {
  const fields = [
    `"topic":${JSON.stringify(draft.topic)}`,
    draft.isAt
      ? `"timing_moment":${timeOf(draft.time, isUtc) / 1000}`
      : `"delay":${JSON.stringify(draft.delay.trim())}`,
    ...(draft.key === "" ? [] : [`"idempotency_key":${JSON.stringify(draft.key)}`]),
    `"content":${draft.content.trim()}`,
  ];
  return `{${fields.join(",")}}`;
}
