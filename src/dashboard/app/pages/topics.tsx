import { useState } from "preact/hooks";
import { call } from "../api/client";
import type { TopicListed } from "../api/types";
import { ask } from "../state/dialog";
import { href } from "../state/route";
import { may } from "../state/session";
import { t } from "../text";
import { useLoaded, Show } from "../ui/loaded";
import { Action, Badge } from "../ui/parts";
import { Table } from "../ui/table";
import { number } from "../view/format";
import { pause, resume } from "./topic/changes";

const PAGE = 200;

/** A longer list is read again only on request: 10,000 topics are more than half a megabyte. */
const FREQUENT = 500;

const name = ({ topic }: TopicListed) => <a href={href("topics", topic)}>{topic}</a>;

/** The topics that the token covers. */
export function Topics() {
  const [size, setSize] = useState(0);
  const topics = useLoaded("topics", size > FREQUENT ? 0 : 5000, async (signal) => {
    const read = await call("/delay/topic/list", {}, signal);
    setSize(read.topics.length);
    return read;
  });
  return <Show of={topics}>{(data) => <List topics={data.topics} reload={topics.reload} />}</Show>;
}

interface ListProps {
  topics: TopicListed[];
  reload: () => Promise<void>;
}

function List({ topics, reload }: ListProps) {
  const [wanted, setWanted] = useState("");
  const [most, setMost] = useState(PAGE);
  const texts = t().topics;
  const found = topics.filter(({ topic }) => topic.toLowerCase().includes(wanted.toLowerCase()));
  const shown = Math.min(found.length, most);
  if (topics.length === 0) return <p>{texts.empty}</p>;
  return (
    <>
      <div class="heading">
        <label class="search">
          {t().search}{" "}
          <input
            type="search"
            value={wanted}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setWanted(event.currentTarget.value)}
          />
        </label>
        <span class="quiet" role="status">
          {t().shownOf(number(shown), number(topics.length))}
        </span>
      </div>
      {found.length === 0 && <p>{texts.noMatch}</p>}
      <Table
        label={t().pages.topics}
        rows={found}
        most={most}
        id={({ topic }) => topic}
        columns={[
          { name: texts.topic, by: ({ topic }) => topic, cell: name },
          {
            name: texts.shards,
            isNumber: true,
            by: ({ shards }) => shards,
            cell: ({ shards }) => number(shards),
          },
          {
            name: texts.state,
            by: ({ paused }) => (paused ? 0 : 1),
            cell: ({ paused }) =>
              paused ? (
                <Badge tone="warn">{texts.paused}</Badge>
              ) : (
                <Badge tone="good">{texts.active}</Badge>
              ),
          },
          {
            name: texts.action,
            cell: (topic) =>
              may.changeTopic(topic.topic) && <Change topic={topic} reload={reload} />,
          },
        ]}
      />
      {found.length > most && (
        <button type="button" onClick={() => setMost(most + PAGE)}>{t().showMore}</button>
      )}
      {topics.length > FREQUENT && (
        <p class="after">
          <Action name={t().reload} run={() => void reload()} />
        </p>
      )}
    </>
  );
}

interface ChangeProps {
  topic: TopicListed;
  reload: () => Promise<void>;
}

function Change({ topic: { topic, paused }, reload }: ChangeProps) {
  const question = () => (paused ? resume(topic, reload) : pause(topic, reload));
  const name = paused ? t().topics.resume : t().topics.pause;
  return <Action isSmall name={name} on={topic} run={() => ask(question())} />;
}
