// The fields for a due time: after a delay, or at a time.
import { t } from "../text";
import { momentOf, zoneName } from "../view/time";
import { Choice, Input } from "./form";

export interface Due {
  isAt: boolean;
  delay: string;
  /** As `<input type="datetime-local">` has it: without a zone. */
  time: string;
}

/** What is wrong with the field that counts. */
export function faultsOfDue({ isAt, delay, time }: Due): { delay?: string; time?: string } {
  const texts = t().due;
  if (isAt) return Number.isNaN(momentOf(time)) ? { time: texts.badTime } : {};
  return /^\d+(ms|s|m|h|d)$/.test(delay.trim()) ? {} : { delay: texts.badDelay };
}

/** The fields of the request. */
export const requestOfDue = ({ isAt, delay, time }: Due) =>
  isAt ? { timing_moment: momentOf(time) / 1000 } : { delay: delay.trim() };

const UNITS: Record<string, number> = {
  ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000,
};

/** The time in Unix ms, for calls that take no delay. `now` is that of the service. */
export function momentOfDue({ isAt, delay, time }: Due, now: number): number {
  if (isAt) return momentOf(time);
  const [, amount, unit = ""] = /^(\d+)(ms|s|m|h|d)$/.exec(delay.trim()) ?? [];
  return now + Number(amount) * (UNITS[unit] ?? NaN);
}

interface Props {
  /** The beginning of the ids of the fields. */
  id: string;
  due: Due;
  change: (fields: Partial<Due>) => void;
  /** Whether an empty field is reported. */
  isTried: boolean;
}

export function DueFields({ id, due, change, isTried }: Props) {
  const texts = t().due;
  const { isAt, delay, time } = due;
  const faults = faultsOfDue(due);
  const moment = momentOf(time);
  return (
    <>
      <fieldset>
        <legend>{texts.when}</legend>
        <Choice name={`${id}-when`} isOn={!isAt} choose={() => change({ isAt: false })}>
          {texts.after}
        </Choice>
        <Choice name={`${id}-when`} isOn={isAt} choose={() => change({ isAt: true })}>
          {texts.at}
        </Choice>
      </fieldset>
      {isAt ? (
        <Input
          id={`${id}-time`}
          isTime
          label={texts.time}
          help={texts.timeHelp(zoneName(Number.isNaN(moment) ? Date.now() : moment))}
          value={time}
          change={(time) => change({ time })}
          fault={isTried || time !== "" ? faults.time : undefined}
        />
      ) : (
        <Input
          id={`${id}-delay`}
          label={texts.delay}
          help={texts.delayHelp}
          value={delay}
          change={(delay) => change({ delay })}
          fault={isTried || delay !== "" ? faults.delay : undefined}
        />
      )}
    </>
  );
}
