import { useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Cause, CauseTopic } from "../../api/types";
import { ask } from "../../state/dialog";
import { go, href, hrefWith } from "../../state/route";
import { may } from "../../state/session";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Show, useLoaded } from "../../ui/loaded";
import { Action, TaskLink, When } from "../../ui/parts";
import { Table } from "../../ui/table";
import { count, number } from "../../view/format";
import { purge, replay } from "./changes";

interface Row extends Cause {
  /** The topics with most of these tasks. */
  topics: CauseTopic[];
}

interface Found {
  /** The most frequent cause first. */
  rows: Row[];
  /** Whether the counts are lower bounds, or causes are missing. */
  isCut: boolean;
  /** How many topics were looked at, if more than one was asked for. */
  topics: number | null;
  /** For the topics that were not looked at yet. */
  cursor: string | null;
}

const NOTHING: Found = { rows: [], isCut: false, topics: null, cursor: null };

/** The topics of a cause that a row names; the others are counted. */
const NAMED = 5;

/** Adds the tasks of a cause in more topics. */
function merged(into: Row, more: Row): Row {
  const topics = [...into.topics, ...more.topics].sort((a, b) => b.count - a.count);
  const example = more.last_ms > into.last_ms ? more : into;
  return {
    ...example,
    count: into.count + more.count,
    first_ms: Math.min(into.first_ms, more.first_ms),
    last_ms: example.last_ms,
    topics,
    more_topics: (into.more_topics ?? 0) + (more.more_topics ?? 0),
  };
}

/** Reads the causes of a topic, or those of the next topics, which are added to the others. */
async function read(topic: string, before: Found, signal: AbortSignal): Promise<Found> {
  const { cursor } = before;
  const request = topic !== "" ? { topic } : cursor === null ? {} : { cursor };
  const answer = await call("/delay/dead/causes", request, signal);
  const rows = [...before.rows];
  for (const cause of answer.causes) {
    const topics = cause.topics ?? [{ topic, count: cause.count }];
    const row: Row = { ...cause, topics };
    // Reasons that the token may not read may differ.
    const same = cause.reason == null ? -1 : rows.findIndex(({ reason }) => reason === cause.reason);
    const other = rows[same];
    if (other === undefined) rows.push(row);
    else rows[same] = merged(other, row);
  }
  return {
    rows: rows.sort((a, b) => b.count - a.count),
    isCut: before.isCut || answer.more,
    topics: answer.topics_seen == null ? null : (before.topics ?? 0) + answer.topics_seen,
    cursor: answer.cursor ?? null,
  };
}

/** The dead tasks by cause: of one topic, or of all. */
export function Dead({ topic }: { topic: string }) {
  const isAllowed = topic !== "" || may.readAll();
  return (
    <>
      <Choose topic={topic} />
      {isAllowed ? <Causes topic={topic} /> : <p>{t().dead.needsTopic}</p>}
    </>
  );
}

function Causes({ topic }: { topic: string }) {
  // The topics that were read before are not read again for the next ones.
  const before = useRef(NOTHING);
  const [isReading, setReading] = useState(false);
  // The call looks at all dead tasks, so it is repeated only on request.
  const loaded = useLoaded(topic, 0, (signal) => read(topic, before.current, signal));
  const readAfter = async (found: Found) => {
    before.current = found;
    setReading(true);
    await loaded.reload();
    setReading(false);
  };
  const reload = () => readAfter(NOTHING);
  const texts = t().dead;
  return (
    <>
      <Show of={loaded}>
        {(found) => (
          <>
            <List found={found} topic={topic} reload={reload} />
            {found.topics !== null && (
              <p role="status" class="quiet">
                {t().tasks.topicsSeen(number(found.topics))}{" "}
                {found.cursor !== null && texts.remainTopics}
              </p>
            )}
            {found.cursor !== null && !isReading && (
              <p>
                <Action name={t().tasks.goOn} run={() => void readAfter(found)} />
              </p>
            )}
          </>
        )}
      </Show>
      <Action name={t().reload} run={() => void reload()} />
    </>
  );
}

function Choose({ topic }: { topic: string }) {
  const [wanted, setWanted] = useState(topic);
  const submit = (event: Event) => {
    event.preventDefault();
    if (wanted.trim() === "") go("dead");
    else go("dead", wanted.trim());
  };
  return (
    <form class="find" onSubmit={submit} noValidate>
      <label>
        {t().dead.topic}
        <input
          autocomplete="off"
          spellcheck={false}
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
      </label>
      <button type="submit">{t().dead.show}</button>
    </form>
  );
}

interface ListProps {
  found: Found;
  topic: string;
  reload: () => Promise<void>;
}

function List({ found: { rows, isCut }, topic, reload }: ListProps) {
  const texts = t().dead;
  if (rows.length === 0) return <p>{texts.empty}</p>;
  return (
    <>
      <Table
        label={t().pages.dead}
        rows={rows}
        id={({ topics, reason, task_id }) => JSON.stringify([topics[0]?.topic, reason, task_id])}
        columns={[
          {
            name: texts.cause,
            by: ({ reason }) => reason ?? "",
            cell: ({ reason }) =>
              reason == null ? (
                <span class="quiet">{texts.hidden}</span>
              ) : (
                <Exact text={reason} />
              ),
          },
          {
            name: texts.topics,
            isMinor: true,
            cell: (row) => <TopicsOf of={row} isLink={topic === ""} />,
          },
          {
            name: texts.tasks,
            isNumber: true,
            by: (row) => row.count,
            cell: (row) => count(row.count, isCut),
          },
          {
            name: texts.first,
            isMinor: true,
            by: ({ first_ms }) => first_ms,
            cell: ({ first_ms }) => <When at={first_ms} />,
          },
          {
            name: texts.last,
            isMinor: true,
            by: ({ last_ms }) => last_ms,
            cell: ({ last_ms }) => <When at={last_ms} />,
          },
          {
            name: texts.example,
            isMinor: true,
            cell: (row) => <TaskLink topic={row.topic ?? topic} id={row.task_id} />,
          },
          { name: t().topics.action, cell: (row) => <Changes of={row} reload={reload} /> },
        ]}
      />
      {isCut && <p class="quiet">{texts.cut}</p>}
      {topic !== "" && may.changeTopic(topic) && (
        <div class="buttons after">
          <Action name={texts.replayAll} run={() => ask(replay({ topic }, reload))} />
          <Action name={texts.purgeAll} run={() => ask(purge({ topic }, reload))} />
        </div>
      )}
    </>
  );
}

/** Links to the causes of the topics, or to the dead tasks of the one topic. */
function TopicsOf({ of: { topics, more_topics }, isLink }: { of: Row; isLink: boolean }) {
  const more = Math.max(0, topics.length - NAMED) + (more_topics ?? 0);
  return (
    <ul class="plain-list">
      {topics.slice(0, NAMED).map(({ topic, count }) => (
        <li key={topic}>
          <a href={isLink ? href("dead", topic) : hrefWith({ state: "dead" }, "tasks", topic)}>
            {topic}
          </a>{" "}
          {topics.length > 1 && <span class="quiet">{number(count)}</span>}
        </li>
      ))}
      {more > 0 && <li class="quiet">{t().dead.moreTopics(number(more))}</li>}
    </ul>
  );
}

/**
 * A cause that the token may not read cannot be selected either. A change selects the tasks of one
 * topic: those of several are changed on the pages of the topics.
 */
function Changes({ of, reload }: { of: Row; reload: () => Promise<void> }) {
  const { reason, topics, more_topics } = of;
  const [first, second] = topics;
  if (reason == null || first === undefined || !may.changeTopic(first.topic)) return null;
  if (second !== undefined || (more_topics ?? 0) > 0) {
    return <span class="quiet">{t().dead.byTopic}</span>;
  }
  const { topic } = first;
  const selection = { topic, reason };
  const texts = t().dead;
  const name = `${topic}, ${reason}`;
  return (
    <div class="buttons">
      <Action isSmall name={texts.replay} on={name} run={() => ask(replay(selection, reload))} />
      <Action isSmall name={texts.purge} on={name} run={() => ask(purge(selection, reload))} />
    </div>
  );
}
