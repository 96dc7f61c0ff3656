import { call } from "../../api/client";
import type { Topic as Shown } from "../../api/types";
import { ask } from "../../state/dialog";
import { href, hrefWith } from "../../state/route";
import { may } from "../../state/session";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Show, useLoaded } from "../../ui/loaded";
import { Action, Field, State, When } from "../../ui/parts";
import { duration, number } from "../../view/format";
import { TASK_STATES } from "../../view/states";
import { pause, purge, remove, resume } from "./changes";
import { edit } from "./edit";
import { TopicForecast } from "./forecast";
import { valuesOf } from "./settings";
import { TopicState } from "./state";

/** One topic: its counts and settings, and what can be done with it. */
export function Topic({ name }: { name: string }) {
  const loaded = useLoaded(name, 3000, (signal) =>
    call("/delay/topic/get", { topic: name }, signal),
  );
  return (
    <Show of={loaded}>
      {(topic) => (
        <>
          <Facts of={topic} />
          {may.changeTopic(name) && <Actions of={topic} reload={loaded.reload} />}
          <Counts of={topic} />
          <p><a href={href("schedules", name)}>{t().pages.schedules}</a></p>
          <TopicForecast topic={name} />
          <Policy of={topic.policy} />
        </>
      )}
    </Show>
  );
}

function Facts({ of }: { of: Shown }) {
  const texts = t().topic;
  return (
    <section aria-label={texts.state}>
      <p class="state">
        <TopicState of={of} />
      </p>
      <dl class="fields">
        <Field name={texts.nextDue}><When at={of.next_due_ms} /></Field>
        <Field name={texts.oldestOverdue}><When at={of.oldest_overdue_ms} /></Field>
        {of.paused && <Field name={texts.pausedSince}><When at={of.paused_since_ms} /></Field>}
        <Field name={texts.historySince}><When at={of.history_since_ms} /></Field>
        <Field name={t().topics.shards}>{number(of.shards)}</Field>
      </dl>
    </section>
  );
}

function Actions({ of, reload }: { of: Shown; reload: () => Promise<void> }) {
  const { topic, paused, counts } = of;
  const all = TASK_STATES.reduce((sum, state) => sum + counts[state], 0);
  return (
    <div class="buttons actions">
      {paused ? (
        <Action name={t().topics.resume} run={() => ask(resume(topic, reload))} />
      ) : (
        <Action name={t().topics.pause} run={() => ask(pause(topic, reload))} />
      )}
      <Action name={t().topic.edit} run={() => ask(edit(of, reload))} />
      <Action name={t().topic.purge} run={() => ask(purge(topic, all, reload))} />
      <Action name={t().topic.delete} run={() => ask(remove(topic))} />
    </div>
  );
}

const Counts = ({ of: { topic, counts } }: { of: Shown }) => (
  <section aria-labelledby="counts">
    <h2 id="counts">{t().topic.counts}</h2>
    <ul class="tiles plain-list">
      {TASK_STATES.map((state) => (
        <li class="tile" key={state}>
          <a href={hrefWith({ state }, "tasks", topic)}>
            <State of={state} /> <b>{number(counts[state])}</b>
          </a>
        </li>
      ))}
    </ul>
    {counts.dead > 0 && (
      <p class="after">
        <a href={href("dead", topic)}>{t().topic.causes}</a>
      </p>
    )}
  </section>
);

/** A setting as text. The service writes each duration in ms. */
function written(value: unknown): string {
  if (Array.isArray(value)) return value.map(written).join(", ");
  if (typeof value === "object" && value !== null) {
    return Object.entries(value).map(([name, part]) => `${name} ${written(part)}`).join(", ");
  }
  const text = String(value);
  return /^\d+ms$/.test(text) ? duration(parseInt(text, 10)) : text;
}

function Policy({ of }: { of: Shown["policy"] }) {
  const texts = t().topic;
  const all = Object.entries(valuesOf(of));
  const settings = all.filter(([, value]) => value !== null && value !== undefined);
  return (
    <section aria-labelledby="policy">
      <h2 id="policy">{texts.policy}</h2>
      {settings.length === 0 && <p>{texts.noPolicy}</p>}
      <dl class="fields">
        {settings.map(([name, value]) => (
          <Field name={texts.settings[name] ?? name} key={name}>
            <Exact text={written(value)} />
          </Field>
        ))}
      </dl>
    </section>
  );
}
