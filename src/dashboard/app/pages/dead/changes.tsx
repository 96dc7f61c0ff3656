// The questions before dead tasks are replayed or purged.
import { signal, type Signal } from "@preact/signals";
import { call } from "../../api/client";
import { newest } from "../../api/live";
import type { AnswerOf } from "../../api/types";
import type { Question } from "../../state/dialog";
import { say } from "../../state/notice";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Input } from "../../ui/form";
import { Preview } from "../../ui/preview";
import { count, number } from "../../view/format";
import { moment } from "../../view/time";

type Reload = () => Promise<void>;

/** Which dead tasks: those with the ids, those of a cause, or all of the topic. */
export interface Selection {
  topic: string;
  reason?: string;
  task_ids?: number[];
}

const requestOf = (of: Selection) => ({ ...of, ...(of.task_ids === undefined && { all: true }) });

interface Counted {
  tasks: number;
  /** There are more than the call looked at. */
  isCut: boolean;
}

/** How many tasks it would be. */
const counted = async (path: "/delay/dead/replay" | "/delay/dead/purge", of: Selection) => {
  const { count: tasks, more } = await call(path, { ...requestOf(of), dry_run: true });
  return { tasks, isCut: more };
};

/** What a series of calls has done. A repeat after an error goes on from there. */
interface Series {
  tasks: number;
  cursor: string | null;
}

const START: Series = { tasks: 0, cursor: null };

/** Calls until all tasks were looked at, or `stop`. */
async function repeat(
  path: "/delay/dead/replay" | "/delay/dead/purge",
  request: Selection & { rate?: string },
  series: Signal<Series>,
  stop: AbortSignal,
) {
  for (;;) {
    const { tasks, cursor } = series.peek();
    const answer: AnswerOf<typeof path> = await call(path, {
      ...requestOf(request),
      ...(cursor !== null && { cursor }),
    });
    series.value = { tasks: tasks + answer.count, cursor: answer.cursor ?? null };
    // At a rate, the rest has its turn after those of this call.
    if (!answer.more || stop.aborted || request.rate) return answer;
  }
}

/** What a series has done, as a sentence; "" before its first answer. */
const progressOf = ({ tasks, cursor }: Series, done: (count: string) => string): string =>
  cursor === null ? "" : `${done(number(tasks))} ${t().dead.remain}`;

/** The destinations of the first dead tasks; those of a cause that is rare may be missing. */
async function destinationsOf({ topic, reason, task_ids }: Selection): Promise<string[]> {
  if (newest.peek() === null) return [];
  const filter = reason === undefined ? {} : { outcome: reason };
  const { tasks } = await call("/delay/task/list", { topic, state: "dead", ...filter, limit: 100 });
  const replayed = tasks.filter(({ task_id }) => task_ids?.includes(task_id) ?? true);
  return replayed.flatMap(({ sn }) => sn ?? []);
}

/** Why calls of these destinations do not begin now, as sentences. */
export function blockedBy(destinations: (string | null | undefined)[]): string {
  const { isHeld, isOpen } = t().dead;
  const found = newest.peek()?.destinations.filter(({ sn }) => destinations.includes(sn)) ?? [];
  return found
    .map(({ sn, held, breaker }) =>
      held ? ` ${isHeld(sn)}` : breaker === "open" ? ` ${isOpen(sn)}` : "",
    )
    .join("");
}

/** A dry run first, and a rate. */
export function replay(of: Selection, reload: Reload): Question {
  const found = signal<Counted | null>(null);
  const series = signal(START);
  const rate = signal("");
  const isBad = () => !/^(\d+\/[smh])?$/.test(rate.value.trim());
  const texts = t().dead;
  return {
    title: texts.replayTitle(of.topic),
    text: texts.replayText,
    action: texts.replay,
    more: () => (
      <>
        <Selected of={of} />
        <Preview into={found} load={() => counted("/delay/dead/replay", of)}>
          {({ tasks, isCut }) => <p>{texts.wouldReplay(count(tasks, isCut))}</p>}
        </Preview>
        <Input
          id="rate"
          label={texts.rate}
          help={texts.rateHelp}
          value={rate.value}
          change={(text) => (rate.value = text)}
          fault={isBad() ? texts.badRate : undefined}
        />
      </>
    ),
    isReady: () => (found.value?.tasks ?? 0) > 0 && !isBad(),
    progress: () => progressOf(series.value, texts.replayed),
    run: async (closed) => {
      const given = rate.peek().trim();
      const request = { ...of, ...(given !== "" && { rate: given }) };
      // Without them, only a sentence is missing.
      const destinations = await destinationsOf(of).catch(() => []);
      const { more, until_ms } = await repeat("/delay/dead/replay", request, series, closed);
      const rest = until_ms == null ? texts.remain : texts.rest(moment(until_ms));
      const done = texts.replayed(number(series.peek().tasks)) + (more ? ` ${rest}` : "");
      say(done + blockedBy(destinations));
      await reload();
    },
  };
}

/** A dry run first, and the topic's name. */
export function purge(of: Selection, reload: Reload): Question {
  const found = signal<Counted | null>(null);
  const series = signal(START);
  const texts = t().dead;
  return {
    title: texts.purgeTitle(of.topic),
    text: texts.purgeText,
    action: texts.purge,
    isDangerous: true,
    retype: of.topic,
    more: () => (
      <>
        <Selected of={of} />
        <Preview into={found} load={() => counted("/delay/dead/purge", of)}>
          {({ tasks, isCut }) => <p>{texts.wouldPurge(count(tasks, isCut))}</p>}
        </Preview>
      </>
    ),
    isReady: () => (found.value?.tasks ?? 0) > 0,
    progress: () => progressOf(series.value, texts.purged),
    run: async (closed) => {
      const { more } = await repeat("/delay/dead/purge", of, series, closed);
      say(texts.purged(number(series.peek().tasks)) + (more ? ` ${texts.remain}` : ""));
      await reload();
    },
  };
}

/** The cause that the tasks have in common, or their number. */
const Selected = ({ of: { reason, task_ids } }: { of: Selection }) => (
  <p>
    {task_ids !== undefined ? (
      t().tasks.selected(number(task_ids.length))
    ) : reason === undefined ? (
      t().dead.allCauses
    ) : (
      <>
        {t().dead.cause}: <b><Exact text={reason} /></b>
      </>
    )}
  </p>
);
