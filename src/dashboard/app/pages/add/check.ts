// Checks the form, and writes the request. The content is part of the request exactly as it was
// typed: parsing and writing it again would round large numbers.
import { t } from "../../text";
import { faultsOfDue, inputsOfDue, requestOfDue, type Due } from "../../ui/due";

export const MODES = ["auto", "push", "pull"] as const;

export interface Draft extends Due {
  topic: string;
  content: string;
  mode: (typeof MODES)[number];
  key: string;
  idempotencyKey: string;
  headers: string;
  attempts: string;
}

type Input =
  | "topic" | "delay" | "time" | "at" | "content" | "key" | "idempotency-key" | "headers"
  | "attempts";

export type Faults = Partial<Record<Input, string>>;

/** The parsed content; null if it is no JSON object. */
export function contentOf(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

const SN = /"sn"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[^\s",{}[\]]+)/g;

/** The content with another `sn`, and all else as it was typed; null if there is no such text. */
export function withService(text: string, sn: string): string | null {
  const content = contentOf(text);
  if (content === null || content["sn"] === sn) return content && text;
  const member = `"sn": ${JSON.stringify(sn)}`;
  const isEmpty = Object.keys(content).length === 0;
  // An inner object may have an `sn`, too.
  const changed = Object.hasOwn(content, "sn")
    ? [...text.matchAll(SN)].map(
        ({ 0: old, index }) => text.slice(0, index) + member + text.slice(index + old.length),
      )
    : [text.replace("{", () => `{${member}${isEmpty ? "" : ", "}`)];
  return changed.find((one) => contentOf(one)?.["sn"] === sn) ?? null;
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

function areHeaders(text: string): boolean {
  const headers = contentOf(text === "" ? "{}" : text);
  return headers !== null && Object.values(headers).every((value) => typeof value === "string");
}

const isLong = (key: string): boolean => new TextEncoder().encode(key).length > 256;

function areAttempts(text: string): boolean {
  const value = Number(text);
  return /^\d*$/.test(text) && (text === "" || (value >= 1 && value <= 1000));
}

/** What is wrong with each field, in the order of the form. */
export function faultsOf(draft: Draft): Faults {
  const texts = t().add;
  const faults: Faults = {};
  if (!/^[A-Za-z0-9._:-]{1,128}$/.test(draft.topic)) faults.topic = texts.badTopic;
  Object.assign(faults, faultsOfDue(draft));
  const content = faultOfContent(draft.content);
  if (content !== undefined) faults.content = content;
  if (isLong(draft.key)) faults.key = texts.badKey;
  if (isLong(draft.idempotencyKey)) faults["idempotency-key"] = texts.badKey;
  if (!areHeaders(draft.headers.trim())) faults.headers = texts.badHeaders;
  if (!areAttempts(draft.attempts.trim())) faults.attempts = texts.badAttempts;
  return faults;
}

/** The fields of the request, and the input for each. */
export const inputsOf = (draft: Draft): Record<string, string> => ({
  topic: "topic",
  ...inputsOfDue(draft),
  content: "content",
  mode: "mode",
  key: "key",
  idempotency_key: "idempotency-key",
  headers: "headers",
  max_attempts: "attempts",
});

/** The body of the request. */
export function bodyOf(draft: Draft): string {
  const [attempts, headers] = [draft.attempts.trim(), draft.headers.trim()];
  const fields = JSON.stringify({
    topic: draft.topic,
    ...requestOfDue(draft),
    ...(draft.mode !== "auto" && { mode: draft.mode }),
    ...(draft.key !== "" && { key: draft.key }),
    ...(draft.idempotencyKey !== "" && { idempotency_key: draft.idempotencyKey }),
    ...(headers !== "" && { headers: contentOf(headers) }),
    ...(attempts !== "" && { max_attempts: Number(attempts) }),
  });
  return `${fields.slice(0, -1)},"content":${draft.content.trim()}}`;
}
