// The form's fields, and the request that they make. The content is part of the request exactly as
// it was typed: parsing and writing it again would round large numbers.
import type { ScheduleListed, ScheduleShown } from "../../api/types";
import { t } from "../../text";
import type { Rule } from "./moments";

export interface Draft {
  schedule: string;
  isCron: boolean;
  cron: string;
  every: string;
  zone: string;
  start: string;
  end: string;
  misfire: ScheduleListed["misfire"];
  overlap: ScheduleListed["overlap"];
  content: string;
  /** The other options, as a JSON object. */
  options: string;
}

const NEW: Draft = {
  schedule: "",
  isCron: true,
  cron: "0 9 * * *",
  every: "1h",
  zone: "",
  start: "",
  end: "",
  misfire: "once",
  overlap: "allow",
  content: '{"sn": "message.call", "url": "/"}',
  options: "",
};

const iso = (ms: number | null | undefined): string =>
  ms == null ? "" : new Date(ms).toISOString();

const UNITS: [string, number][] = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]];

/** A duration as the API takes it. */
function spanOf(ms: number): string {
  const [unit, size] = UNITS.find(([, size]) => ms % size === 0) ?? ["ms", 1];
  return `${ms / size}${unit}`;
}

/** The fields of a schedule, or those of a new one. */
export function draftOf(of: ScheduleShown | null): Draft {
  if (of === null) return NEW;
  const { content, every_ms } = of;
  const options = { mode: of.sn == null ? "pull" : "push", ...of.options };
  return {
    schedule: of.schedule,
    isCron: of.cron != null,
    cron: of.cron ?? "",
    every: every_ms == null ? "" : spanOf(every_ms),
    zone: of.zone,
    start: iso(of.start_ms),
    end: iso(of.end_ms),
    misfire: of.misfire,
    overlap: of.overlap,
    content: content ?? "",
    options: JSON.stringify(options, null, 2),
  };
}

const given = (fields: Record<string, string>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(fields)
      .map(([name, value]) => [name, value.trim()] as const)
      .filter(([, value]) => value !== ""),
  );

/** The rule of the form. */
export const ruleOfDraft = ({ isCron, cron, every, zone, start, end }: Draft): Rule =>
  given({ ...(isCron ? { cron } : { every }), zone, start, end });

/** The rule of a stored schedule. `every` counts from `start`, or from the set. */
export function ruleOfShown(of: ScheduleListed): Rule {
  const { cron, every_ms, zone, start_ms, end_ms, set_ms } = of;
  const [rule, from] =
    cron != null ? [{ cron }, start_ms] : [{ every: `${every_ms}ms` }, start_ms ?? set_ms];
  return given({ ...rule, zone, start: iso(from), end: iso(end_ms) });
}

const isObject = (text: string): boolean => {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
};

export type Faults = Partial<Record<"schedule" | "content" | "options", string>>;

/** What is wrong with the fields, as far as the page knows. */
export function faultsOf({ schedule, content, options }: Draft): Faults {
  const faults: Faults = {};
  if (!/^[A-Za-z0-9._:-]{1,128}$/.test(schedule)) faults.schedule = t().schedules.badName;
  if (!isObject(content)) faults.content = t().add.notObject;
  if (options.trim() !== "" && !isObject(options)) faults.options = t().schedules.badOptions;
  return faults;
}

/** The body of the request. */
export function bodyOf(topic: string, draft: Draft): string {
  const { schedule, misfire, overlap, content, options } = draft;
  const others: object = options.trim() === "" ? {} : JSON.parse(options);
  const fields = JSON.stringify({
    ...others,
    topic,
    schedule,
    ...ruleOfDraft(draft),
    misfire,
    overlap,
  });
  return `${fields.slice(0, -1)},"content":${content.trim()}}`;
}
