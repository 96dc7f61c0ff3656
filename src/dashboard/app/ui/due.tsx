// The fields for a due time: after a delay, at a time, or at a time as text.
import { t } from "../text";
import { momentOf, zoneName } from "../view/time";
import { Choice, Input } from "./form";
import { saidOf, type Refused } from "./refused";

const WAYS = ["delay", "time", "text"] as const;

export interface Due {
  way: (typeof WAYS)[number];
  delay: string;
  /** As `<input type="datetime-local">` has it: without a zone. */
  time: string;
  /** As the service reads it: RFC 3339, or a local time in `zone`. */
  at: string;
  zone: string;
}

export const NO_DUE: Due = { way: "delay", delay: "", time: "", at: "", zone: "" };

type DueField = "delay" | "time" | "at" | "zone";

/** What is wrong with the fields that count, as far as the page knows. */
export function faultsOfDue({ way, delay, time, at }: Due): Partial<Record<DueField, string>> {
  const texts = t().due;
  if (way === "time") return Number.isNaN(momentOf(time)) ? { time: texts.badTime } : {};
  if (way === "text") return at.trim() === "" ? { at: texts.badText } : {};
  return /^\d+(ms|s|m|h|d)$/.test(delay.trim()) ? {} : { delay: texts.badDelay };
}

/** The fields of requests, and the input for each. */
export const inputsOfDue = ({ way }: Due): Record<string, DueField> => ({
  delay: "delay",
  timing_moment: way === "delay" ? "delay" : "time",
  at: "at",
  zone: "zone",
});

const written = ({ at, zone }: Due) => ({
  at: at.trim(),
  ...(zone.trim() !== "" && { zone: zone.trim() }),
});

/** The fields of the request. */
export function requestOfDue(due: Due) {
  if (due.way === "text") return written(due);
  if (due.way === "time") return { timing_moment: momentOf(due.time) / 1000 };
  return { delay: due.delay.trim() };
}

const UNITS: Record<string, number> = {
  ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000,
};

/** The fields for calls that take no delay. `now` is the time of the service, in Unix ms. */
export function momentOfDue(due: Due, now: number) {
  if (due.way !== "delay") return requestOfDue(due);
  const [, amount, unit = ""] = /^(\d+)(ms|s|m|h|d)$/.exec(due.delay.trim()) ?? [];
  return { timing_moment: (now + Number(amount) * (UNITS[unit] ?? NaN)) / 1000 };
}

interface Props {
  /** The beginning of the ids of the fields. */
  id: string;
  due: Due;
  change: (fields: Partial<Due>) => void;
  /** Whether an empty field is reported. */
  isTried: boolean;
  refused: Refused | null;
}

export function DueFields({ id, due, change, isTried, refused }: Props) {
  const texts = t().due;
  const { way, delay, time, at, zone } = due;
  const faults = faultsOfDue(due);
  const moment = momentOf(time);
  return (
    <>
      <fieldset>
        <legend>{texts.when}</legend>
        {WAYS.map((one) => (
          <Choice name={`${id}-when`} isOn={way === one} choose={() => change({ way: one })}>
            {texts.ways[one]}
          </Choice>
        ))}
      </fieldset>
      {way === "delay" && (
        <Input
          id={`${id}-delay`}
          label={texts.delay}
          help={texts.delayHelp}
          value={delay}
          change={(delay) => change({ delay })}
          fault={
            saidOf(refused, "delay", "timing_moment") ??
            (isTried || delay !== "" ? faults.delay : undefined)
          }
        />
      )}
      {way === "time" && (
        <Input
          id={`${id}-time`}
          isTime
          label={texts.time}
          help={texts.timeHelp(zoneName(Number.isNaN(moment) ? Date.now() : moment))}
          value={time}
          change={(time) => change({ time })}
          fault={
            saidOf(refused, "timing_moment") ??
            (isTried || time !== "" ? faults.time : undefined)
          }
        />
      )}
      {way === "text" && (
        <>
          <Input
            id={`${id}-at`}
            label={texts.text}
            help={texts.textHelp}
            value={at}
            change={(at) => change({ at })}
            fault={saidOf(refused, "at") ?? (isTried ? faults.at : undefined)}
          />
          <Input
            id={`${id}-zone`}
            label={texts.zone}
            help={texts.zoneHelp}
            value={zone}
            change={(zone) => change({ zone })}
            fault={saidOf(refused, "zone")}
          />
        </>
      )}
    </>
  );
}
