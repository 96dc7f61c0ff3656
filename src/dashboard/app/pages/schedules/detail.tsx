import { call } from "../../api/client";
import type { ScheduleListed, ScheduleShown } from "../../api/types";
import { ask } from "../../state/dialog";
import { href } from "../../state/route";
import { may } from "../../state/session";
import { t } from "../../text";
import { Copy } from "../../ui/copy";
import { Exact } from "../../ui/exact";
import { Show, useLoaded } from "../../ui/loaded";
import { Action, Field, State, TaskLink, When } from "../../ui/parts";
import { Table } from "../../ui/table";
import { number } from "../../view/format";
import { pause, remove, resume, run } from "./changes";
import { ruleOfShown } from "./draft";
import { set } from "./form";
import { Moments } from "./moments";
import { Activity, ruleOf } from "./parts";

type Reload = () => Promise<void>;

/** One schedule: what it says, its next moments, and its last occurrences. */
export function ScheduleDetail({ topic, name }: { topic: string; name: string }) {
  const loaded = useLoaded(`${topic}/${name}`, 3000, (signal) =>
    call("/delay/schedule/get", { topic, schedule: name }, signal),
  );
  return (
    <Show of={loaded}>
      {(schedule) => (
        <>
          <Facts of={schedule} />
          <Actions of={schedule} reload={loaded.reload} />
          {schedule.unreadable ? <p>{t().schedules.unreadableText}</p> : <Next of={schedule} />}
          <Recent of={schedule} />
          <Content of={schedule} />
        </>
      )}
    </Show>
  );
}

const Next = ({ of }: { of: ScheduleListed }) => (
  <section aria-labelledby="next">
    <h2 id="next">{t().schedules.moments}</h2>
    {of.paused && <p>{t().schedules.pausedMoments}</p>}
    <Moments rule={ruleOfShown(of)} every={5000} />
  </section>
);

function Facts({ of }: { of: ScheduleListed }) {
  const texts = t().schedules;
  return (
    <section aria-label={texts.state}>
      <p class="state"><Activity of={of} /></p>
      <dl class="fields">
        <Field name={t().topics.topic}>
          <a href={href("schedules", of.topic)}>{of.topic}</a>
        </Field>
        <Field name={texts.rule}><code>{ruleOf(of)}</code></Field>
        <Field name={texts.zone}>{of.zone}</Field>
        <Field name={texts.next}><When at={of.next[0]?.moment_ms} /></Field>
        {of.start_ms != null && <Field name={texts.start}><When at={of.start_ms} /></Field>}
        {of.end_ms != null && <Field name={texts.end}><When at={of.end_ms} /></Field>}
        {of.paused && <Field name={t().topic.pausedSince}><When at={of.paused_since_ms} /></Field>}
        <Field name={t().task.destination}>
          {of.sn == null ? t().forecast.pulled : <Exact text={of.sn} />}
        </Field>
        <Field name={texts.setAt}><When at={of.set_ms} /></Field>
        <Field name={texts.misfire}>
          <code>{of.misfire}</code> <span class="quiet">{texts.misfires[of.misfire]}</span>
        </Field>
        <Field name={texts.overlap}>
          <code>{of.overlap}</code> <span class="quiet">{texts.overlaps[of.overlap]}</span>
        </Field>
      </dl>
    </section>
  );
}

function Actions({ of, reload }: { of: ScheduleShown; reload: Reload }) {
  const { topic, schedule, paused, unreadable } = of;
  const texts = t().schedules;
  const isChanger = may.changeTopic(topic);
  return (
    <div class="buttons actions">
      {isChanger && (
        <Action
          name={paused ? t().topics.resume : t().topics.pause}
          run={() => ask((paused ? resume : pause)(topic, schedule, reload))}
        />
      )}
      {may.changeTasks(topic) && (
        <Action name={t().task.runNow} run={() => ask(run(topic, schedule, reload))} />
      )}
      {isChanger && (
        <>
          {!unreadable && (
            <Action name={texts.change} run={() => ask(set(topic, of, reload))} />
          )}
          <Action name={texts.delete} run={() => ask(remove(topic, schedule))} />
        </>
      )}
    </div>
  );
}

function Recent({ of: { topic, recent } }: { of: ScheduleListed }) {
  const texts = t().schedules;
  return (
    <section aria-labelledby="recent">
      <h2 id="recent">{texts.occurrences}</h2>
      {recent.length === 0 ? (
        <p>{texts.noOccurrences}</p>
      ) : (
        <Table
          label={texts.occurrences}
          rows={recent}
          id={({ task_id }) => String(task_id)}
          columns={[
            { name: texts.moment, cell: ({ moment_ms }) => <When at={moment_ms} /> },
            { name: texts.localMoment, isMinor: true, cell: ({ moment }) => moment },
            { name: texts.task, cell: ({ task_id }) => <TaskLink topic={topic} id={task_id} /> },
            {
              name: texts.state,
              cell: ({ state }) =>
                state == null ? <span class="quiet">{texts.purged}</span> : <State of={state} />,
            },
            {
              name: t().task.attempts,
              isMinor: true,
              isNumber: true,
              cell: ({ attempts }) => (attempts == null ? "–" : number(attempts)),
            },
            {
              name: t().task.lastOutcome,
              isMinor: true,
              cell: ({ last_outcome }) => <Exact text={last_outcome ?? "–"} />,
            },
          ]}
        />
      )}
    </section>
  );
}

function Content({ of: { content, options } }: { of: ScheduleShown }) {
  const texts = t().task;
  return (
    <section aria-labelledby="content">
      <div class="heading">
        <h2 id="content">{t().schedules.content}</h2>
        {content != null && <Copy text={() => content} />}
      </div>
      {content == null ? (
        <p class="quiet">{texts.contentHidden}</p>
      ) : (
        <pre tabIndex={0} dir="ltr" data-content aria-labelledby="content" role="group">
          <Exact text={content} />
        </pre>
      )}
      {options != null && Object.keys(options).length > 0 && (
        <>
          <h3 id="options">{texts.options}</h3>
          <pre tabIndex={0} dir="ltr" aria-labelledby="options" role="group">
            <Exact text={JSON.stringify(options, null, 2)} />
          </pre>
        </>
      )}
    </section>
  );
}
