import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { ScheduleListed } from "../../api/types";
import { ask } from "../../state/dialog";
import { go, href, hrefWith, route } from "../../state/route";
import { may } from "../../state/session";
import { t } from "../../text";
import { Show, useLoaded } from "../../ui/loaded";
import { Action, State, When } from "../../ui/parts";
import { Table } from "../../ui/table";
import { pause, resume } from "./changes";
import { ScheduleDetail } from "./detail";
import { set } from "./form";
import { Activity, ruleOf } from "./parts";

const PAGE = 50;

/** The occurrences of a row. */
const RECENT = 3;

/** The recurring schedules of a topic, or one of them. */
export function Schedules({ topic, name }: { topic: string; name: string }) {
  if (name !== "") return <ScheduleDetail topic={topic} name={name} key={`${topic}/${name}`} />;
  return (
    <>
      <Choose topic={topic} />
      {topic === "" ? <p>{t().schedules.needsTopic}</p> : <Listed topic={topic} />}
    </>
  );
}

function Choose({ topic }: { topic: string }) {
  const [wanted, setWanted] = useState(topic);
  const submit = (event: Event) => {
    event.preventDefault();
    if (wanted.trim() !== "") go("schedules", wanted.trim());
  };
  return (
    <form class="find" onSubmit={submit} noValidate>
      <label>
        {t().topics.topic}
        <input
          autocomplete="off"
          spellcheck={false}
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
      </label>
      <button type="submit">{t().schedules.show}</button>
    </form>
  );
}

function Listed({ topic }: { topic: string }) {
  const cursor = route.value.query["cursor"] ?? "";
  const loaded = useLoaded(`${topic}?${cursor}`, 5000, (signal) =>
    call(
      "/delay/schedule/list",
      { topic, limit: PAGE, ...(cursor !== "" && { cursor }) },
      signal,
    ),
  );
  const texts = t().schedules;
  return (
    <>
      {may.changeTopic(topic) && (
        <div class="buttons actions">
          <Action name={texts.set} run={() => ask(set(topic, null, loaded.reload))} />
        </div>
      )}
      <Show of={loaded}>
        {({ schedules, cursor: next }) => (
          <>
            {schedules.length === 0 ? (
              <p>{texts.empty}</p>
            ) : (
              <List rows={schedules} reload={loaded.reload} />
            )}
            <div class="buttons after">
              {cursor !== "" && <a href={href("schedules", topic)}>{t().firstPage}</a>}
              {next != null && (
                <a href={hrefWith({ cursor: next }, "schedules", topic)}>{t().nextPage}</a>
              )}
            </div>
          </>
        )}
      </Show>
    </>
  );
}

function List({ rows, reload }: { rows: ScheduleListed[]; reload: () => Promise<void> }) {
  const texts = t().schedules;
  return (
    <Table
      label={t().pages.schedules}
      rows={rows}
      id={({ schedule }) => schedule}
      columns={[
        {
          name: texts.schedule,
          cell: ({ topic, schedule }) => (
            <a href={href("schedules", topic, schedule)}>{schedule}</a>
          ),
        },
        { name: texts.rule, isMinor: true, cell: (of) => <code>{ruleOf(of)}</code> },
        { name: texts.zone, isMinor: true, cell: ({ zone }) => zone },
        { name: texts.state, cell: (of) => <Activity of={of} /> },
        { name: texts.next, cell: ({ next }) => <When at={next[0]?.moment_ms} /> },
        { name: texts.recent, isMinor: true, cell: ({ recent }) => <Recent of={recent} /> },
        {
          name: t().topics.action,
          isMinor: true,
          cell: (of) => may.changeTopic(of.topic) && <Change of={of} reload={reload} />,
        },
      ]}
    />
  );
}

/** The states of the last occurrences that were handed out, the newest first. */
function Recent({ of }: { of: ScheduleListed["recent"] }) {
  const ended = of.filter(({ state }) => state != null && state !== "scheduled");
  if (ended.length === 0) return <span class="quiet">–</span>;
  return (
    <span class="buttons">
      {ended.slice(0, RECENT).map(({ task_id, state }) => (
        state != null && <State of={state} key={task_id} />
      ))}
    </span>
  );
}

function Change({ of, reload }: { of: ScheduleListed; reload: () => Promise<void> }) {
  const { topic, schedule, paused } = of;
  const question = () => (paused ? resume : pause)(topic, schedule, reload);
  const name = paused ? t().topics.resume : t().topics.pause;
  return <Action isSmall name={name} on={schedule} run={() => ask(question())} />;
}
