// Cancels or moves all tasks that a list has, on all of its pages, or those that are selected.
import { signal, type Signal } from "@preact/signals";
import { call } from "../../api/client";
import type { RequestOf } from "../../api/types";
import { ask, type Question } from "../../state/dialog";
import { say } from "../../state/notice";
import { may, serviceNow } from "../../state/session";
import { t } from "../../text";
import {
  DueFields, faultsOfDue, inputsOfDue, momentOfDue, NO_DUE, type Due,
} from "../../ui/due";
import { Exact } from "../../ui/exact";
import { Action } from "../../ui/parts";
import { Preview } from "../../ui/preview";
import { idsOf } from "../../ui/refused";
import { count, number } from "../../view/format";
import { moment, zoneName } from "../../view/time";
import { replay } from "../dead/changes";
import { matchingOf, type Filters, type Matching as Selection } from "./filters";

type Reload = () => Promise<void>;

/** A dry run looks at the tasks of so many calls, each of up to 10,000. */
const MOST_CALLS = 10;

/** What a series of calls has done. A repeat after an error goes on from there. */
interface Series {
  tasks: number;
  seen: number;
  cursor: string | null;
}

const START: Series = { tasks: 0, seen: 0, cursor: null };

type Step = (cursor: { cursor?: string }) => Promise<{
  count: number;
  seen: number;
  cursor?: string | null;
}>;

/** Calls once, and adds what the call did. */
async function after({ tasks, seen, cursor }: Series, step: Step): Promise<Series> {
  const answer = await step(cursor === null ? {} : { cursor });
  return {
    tasks: tasks + answer.count,
    seen: seen + answer.seen,
    cursor: answer.cursor ?? null,
  };
}

/** Whether there is something to do, or may be: a dry run may end before it meets a task. */
const isWorth = (found: Series | null): boolean =>
  found !== null && (found.tasks > 0 || found.cursor !== null);

/** How many tasks it would be. */
async function counted(step: Step, stop: AbortSignal): Promise<Series> {
  let series = await after(START, step);
  for (let calls = 1; calls < MOST_CALLS && series.cursor !== null && !stop.aborted; calls += 1) {
    series = await after(series, step);
  }
  return series;
}

/** Calls until all tasks were looked at, or `stop`. */
async function repeat(series: Signal<Series>, step: Step, stop: AbortSignal): Promise<void> {
  do {
    series.value = await after(series.peek(), step);
  } while (series.peek().cursor !== null && !stop.aborted);
}

const Counted = ({ of, text }: { of: Series; text: (count: string) => string }) => (
  <p>
    {text(count(of.tasks, of.cursor !== null))} {t().tasks.seen(number(of.seen))}
  </p>
);

/** The filter that applies: the fields of the form may have been changed since. */
function Selected({ of: { task_ids, sn, outcome, due_from, due_to } }: { of: Selection }) {
  const texts = t().tasks;
  if (task_ids) return <p class="selected">{texts.selected(number(task_ids.length))}</p>;
  const time = (seconds: number | null | undefined) =>
    seconds == null ? null : moment(seconds * 1000);
  const zone = (seconds: number | null | undefined) => zoneName((seconds ?? 0) * 1000);
  const parts: [string, string | null | undefined][] = [
    [texts.fields.sn, sn],
    [texts.fields.outcome, outcome],
    [texts.from(zone(due_from)), time(due_from)],
    [texts.to(zone(due_to)), time(due_to)],
  ];
  const given = parts.filter(([, value]) => value != null);
  if (given.length === 0) return <p class="selected">{texts.noFilter}</p>;
  return (
    <>
      {given.map(([name, value]) => (
        <p class="selected" key={name}>
          {name}: <b><Exact text={value ?? ""} /></b>
        </p>
      ))}
    </>
  );
}

/** What was done, and whether tasks are left that were not looked at. */
const saidOf = ({ tasks, cursor }: Series, done: (count: string) => string): string =>
  done(number(tasks)) + (cursor === null ? "" : ` ${t().tasks.remain}`);

const progressOf = (series: Series, done: (count: string) => string): string =>
  series.cursor === null ? "" : saidOf(series, done);

/** A dry run first, and the topic's name. */
function cancelAll(of: Selection, state: "scheduled" | "dead", reload: Reload): Question {
  const found = signal<Series | null>(null);
  const series = signal(START);
  const texts = t().tasks;
  const isSome = of.task_ids != null;
  return {
    title: (isSome ? texts.cancelSelectedTitle : texts.cancelTitle)(of.topic),
    text: isSome ? texts.cancelSelectedText : texts.cancelText(t().states[state]),
    action: isSome ? texts.cancelSelected : texts.cancelAll,
    isDangerous: true,
    retype: of.topic,
    more: () => (
      <>
        <Selected of={of} />
        <Preview
          into={found}
          load={(stop) =>
            counted(
              (cursor) =>
                call("/delay/task/cancel_many", { ...of, state, dry_run: true, ...cursor }, stop),
              stop,
            )
          }
        >
          {(run) => <Counted of={run} text={texts.wouldCancel} />}
        </Preview>
      </>
    ),
    isReady: () => isWorth(found.value),
    progress: () => progressOf(series.value, texts.cancelled),
    run: async (closed) => {
      const step: Step = (cursor) => call("/delay/task/cancel_many", { ...of, state, ...cursor });
      await repeat(series, step, closed);
      say(saidOf(series.peek(), texts.cancelled));
      await reload();
    },
  };
}

/** A dry run first, and the new due time. */
function moveAll(of: Selection, reload: Reload): Question {
  const found = signal<Series | null>(null);
  const series = signal(START);
  const due = signal<Due>(NO_DUE);
  const change = (fields: Partial<Due>) => (due.value = { ...due.value, ...fields });
  const texts = t().tasks;
  const isSome = of.task_ids != null;
  // All calls of a series have the same time.
  let becomes: Partial<RequestOf<"/delay/task/update_many">> = {};
  return {
    title: (isSome ? texts.moveSelectedTitle : texts.moveTitle)(of.topic),
    text: isSome ? texts.moveSelectedText : texts.moveText,
    action: isSome ? texts.moveSelected : texts.moveAll,
    inputs: () => idsOf("move", inputsOfDue(due.value)),
    more: (refused) => (
      <>
        <Selected of={of} />
        <Preview
          into={found}
          load={(stop) => {
            const timing_moment = serviceNow() / 1000;
            return counted(
              (cursor) =>
                call(
                  "/delay/task/update_many",
                  { ...of, timing_moment, dry_run: true, ...cursor },
                  stop,
                ),
              stop,
            );
          }}
        >
          {(run) => <Counted of={run} text={texts.wouldMove} />}
        </Preview>
        {series.value.cursor === null && (
          <DueFields id="move" due={due.value} change={change} isTried={false} refused={refused} />
        )}
      </>
    ),
    isReady: () => isWorth(found.value) && Object.keys(faultsOfDue(due.value)).length === 0,
    progress: () => progressOf(series.value, texts.moved),
    run: async (closed) => {
      if (series.peek().cursor === null) becomes = momentOfDue(due.peek(), serviceNow());
      const request = { ...of, ...becomes };
      const step: Step = (cursor) => call("/delay/task/update_many", { ...request, ...cursor });
      await repeat(series, step, closed);
      say(saidOf(series.peek(), texts.moved));
      await reload();
    },
  };
}

/** The buttons, if the token may do it and a change can select the same tasks. */
export function Matching({ filters, reload }: { filters: Filters; reload: Reload }) {
  const matching = matchingOf(filters);
  const { topic, state, q, by } = filters;
  const texts = t().tasks;
  if (!may.changeTopic(topic)) return null;
  if (matching === null || (state !== "scheduled" && state !== "dead")) return null;
  return (
    <div class="buttons after">
      {state === "scheduled" && (
        <Action name={texts.moveAll} run={() => ask(moveAll(matching, reload))} />
      )}
      {state === "dead" && (q === "" || by === "outcome") && (
        <Action
          name={t().dead.replayMatching}
          run={() => ask(replay({ topic, ...(q !== "" && { reason: q }) }, reload))}
        />
      )}
      <Action name={texts.cancelAll} run={() => ask(cancelAll(matching, state, reload))} />
    </div>
  );
}

interface ChosenProps {
  topic: string;
  state: "scheduled" | "dead";
  ids: number[];
  reload: Reload;
}

/** The buttons for the tasks that are selected. */
export function Chosen({ topic, state, ids, reload }: ChosenProps) {
  const texts = t().tasks;
  if (ids.length === 0) return null;
  const of = { topic, task_ids: ids };
  return (
    <div class="buttons after">
      <span role="status">{texts.selected(number(ids.length))}</span>
      {state === "scheduled" && (
        <Action name={texts.moveSelected} run={() => ask(moveAll(of, reload))} />
      )}
      {state === "dead" && (
        <Action name={t().dead.replaySelected} run={() => ask(replay(of, reload))} />
      )}
      <Action name={texts.cancelSelected} run={() => ask(cancelAll(of, state, reload))} />
    </div>
  );
}
