import { useState } from "preact/hooks";
import { call } from "../api/client";
import type { TopicListed } from "../api/types";
import { ask } from "../state/dialog";
import { may } from "../state/session";
import { t } from "../text";
import { useLoaded, Show } from "../ui/loaded";
import { Badge } from "../ui/parts";
import { Table } from "../ui/table";
import { number } from "../view/format";

const PAGE = 200;

/** The topics that the token covers. */
export function Topics() {
  const topics = useLoaded("topics", 5000, (signal) => call("/delay/topic/list", {}, signal));
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
  const shown = found.slice(0, most);
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
          {t().shownOf(number(shown.length), number(topics.length))}
        </span>
      </div>
      {found.length === 0 && <p>{texts.noMatch}</p>}
      <Table
        label={t().pages.topics}
        rows={shown}
        id={({ topic }) => topic}
        columns={[
          { name: texts.topic, by: ({ topic }) => topic, cell: ({ topic }) => <bdi>{topic}</bdi> },
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
    </>
  );
}

interface ChangeProps {
  topic: TopicListed;
  reload: () => Promise<void>;
}

function Change({ topic: { topic, paused }, reload }: ChangeProps) {
  const texts = t().topics;
  const change = async () => {
    await call(paused ? "/delay/topic/resume" : "/delay/topic/pause", { topic });
    await reload();
  };
  const question = paused
    ? { title: texts.resumeTitle(topic), text: texts.resumeText, action: texts.resume }
    : { title: texts.pauseTitle(topic), text: texts.pauseText, action: texts.pause };
  return (
    <button
      type="button"
      class="small"
      aria-label={`${question.action} ${topic}`}
      onClick={() => ask({ ...question, run: change })}
    >
      {question.action}
    </button>
  );
}
