// What the service says about one field of a request. Its sentence begins with the field's name.
import type { CallError } from "../api/client";
import { t } from "../text";

export interface Refused {
  field: string;
  sentence: string;
}

/** The refusal, if it is about one of these fields; null for all other errors. */
export function refusedOf(error: CallError | null, fields: readonly string[]): Refused | null {
  if (error?.status !== 400) return null;
  const [, field = "", says = ""] = /^([a-z_]+): (.*)$/s.exec(error.message) ?? [];
  const { codes, details } = t().errors;
  const translated = codes[error.code] ?? "";
  return fields.includes(field) ? { field, sentence: translated + details(says) } : null;
}

/** The ids of inputs whose names have this beginning. */
export const idsOf = (id: string, inputs: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(inputs).map(([field, input]) => [field, `${id}-${input}`]));

/** The sentence, if it is about one of the fields. */
export const saidOf = (refused: Refused | null, ...fields: string[]): string | undefined =>
  refused !== null && fields.includes(refused.field) ? refused.sentence : undefined;
