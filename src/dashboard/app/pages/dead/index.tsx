import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Cause } from "../../api/types";
import { ask } from "../../state/dialog";
import { go, href, hrefWith } from "../../state/route";
import { may } from "../../state/session";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Show, useLoaded } from "../../ui/loaded";
import { Action, TaskLink, When } from "../../ui/parts";
import { Table } from "../../ui/table";
import { count } from "../../view/format";
import { purge, replay } from "./changes";

/** The causes of so many topics are read without a choice of a topic. */
const MOST_TOPICS = 20;

interface Row extends Cause {
  topic: string;
}

interface Found {
  rows: Row[];
  /** Topics whose dead tasks were not all looked at. */
  cut: string[];
  /** Whether there are too many topics to ask all. */
  needsTopic: boolean;
}

async function read(topic: string, signal: AbortSignal): Promise<Found> {
  const topics =
    topic !== ""
      ? [topic]
      : (await call("/delay/topic/list", {}, signal)).topics.map(({ topic }) => topic);
  if (topics.length > MOST_TOPICS) return { rows: [], cut: [], needsTopic: true };
  const found: Found = { rows: [], cut: [], needsTopic: false };
  for (const one of topics) {
    const { causes, more } = await call("/delay/dead/causes", { topic: one }, signal);
    found.rows.push(...causes.map((cause) => ({ ...cause, topic: one })));
    if (more) found.cut.push(one);
  }
  found.rows.sort((a, b) => b.count - a.count);
  return found;
}

/** The dead tasks by cause: of one topic, or of all if they are few. */
export function Dead({ topic }: { topic: string }) {
  // The call looks at all dead tasks, so it is repeated only on request.
  const loaded = useLoaded(topic, 0, (signal) => read(topic, signal));
  return (
    <>
      <Choose topic={topic} />
      <Show of={loaded}>
        {(found) => <List found={found} topic={topic} reload={loaded.reload} />}
      </Show>
      <Action name={t().reload} run={() => void loaded.reload()} />
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

function List({ found: { rows, cut, needsTopic }, topic, reload }: ListProps) {
  const texts = t().dead;
  if (needsTopic) return <p>{texts.needsTopic}</p>;
  if (rows.length === 0) return <p>{texts.empty}</p>;
  return (
    <>
      <Table
        label={t().pages.dead}
        rows={rows}
        id={({ topic, reason, task_id }) => JSON.stringify([topic, reason, task_id])}
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
            name: t().topics.topic,
            by: ({ topic }) => topic,
            cell: ({ topic }) => <a href={href("topics", topic)}>{topic}</a>,
          },
          {
            name: texts.tasks,
            isNumber: true,
            by: (row) => row.count,
            cell: ({ count: tasks, topic }) => (
              <a href={hrefWith({ state: "dead" }, "tasks", topic)}>
                {count(tasks, cut.includes(topic))}
              </a>
            ),
          },
          {
            name: texts.first,
            by: ({ first_ms }) => first_ms,
            cell: ({ first_ms }) => <When at={first_ms} />,
          },
          {
            name: texts.last,
            by: ({ last_ms }) => last_ms,
            cell: ({ last_ms }) => <When at={last_ms} />,
          },
          {
            name: texts.example,
            cell: ({ task_id, topic }) => <TaskLink topic={topic} id={task_id} />,
          },
          { name: t().topics.action, cell: (row) => <Changes of={row} reload={reload} /> },
        ]}
      />
      {cut.length > 0 && <p class="quiet">{texts.cut(cut.join(", "))}</p>}
      {topic !== "" && may.changeTopic(topic) && (
        <div class="buttons after">
          <Action name={texts.replayAll} run={() => ask(replay({ topic }, reload))} />
          <Action name={texts.purgeAll} run={() => ask(purge({ topic }, reload))} />
        </div>
      )}
    </>
  );
}

/** A cause that the token may not read cannot be selected either. */
function Changes({ of: { topic, reason }, reload }: { of: Row; reload: () => Promise<void> }) {
  if (reason == null || !may.changeTopic(topic)) return null;
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
