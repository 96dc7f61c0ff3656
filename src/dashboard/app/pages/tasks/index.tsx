import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import { zone } from "../../state/preferences";
import { goInstead, href, hrefWith, route } from "../../state/route";
import { may } from "../../state/session";
import { t } from "../../text";
import { Show, useLoaded } from "../../ui/loaded";
import { Action, Field, State } from "../../ui/parts";
import { number } from "../../view/format";
import {
  filtersOf, findRequestOf, isInAllTopics, isScan, listRequestOf, queryOf, type Filters,
} from "./filters";
import { FilterForm } from "./form";
import { List } from "./list";
import { Chosen, Matching } from "./matching";

const PAGE = 50;

/** How many topics are proposed. */
const TOPICS = 100;

/**
 * The tasks that a search finds. The address holds the filters and the page. Without a topic, those
 * of the topic with most waiting, or most dead, tasks are shown.
 */
export function Tasks({ topic }: { topic: string }) {
  const { query } = route.value;
  const filters = filtersOf(topic, query);
  const props = { filters, cursor: query["cursor"] ?? "" };
  const isAnywhere = isInAllTopics(filters);
  const sort = filters.state === "dead" ? "dead" : "pending";
  const topics = useLoaded(sort, 0, async (signal) => {
    const answer = await call("/delay/topic/list", { sort, limit: TOPICS }, signal);
    return answer.topics.map(({ topic }) => topic);
  });
  const fullest = topics.data?.[0];
  const isOpen = topic !== "" || isAnywhere;
  useEffect(() => {
    if (!isOpen && fullest !== undefined) goInstead(queryOf(filters), "tasks", fullest);
  }, [isOpen, fullest]);
  return (
    <>
      <FilterForm filters={filters} topics={topics.data ?? []} key={zone.value} />
      {isAnywhere ? <FoundAnywhere {...props} /> : topic !== "" && <Found {...props} />}
      {!isOpen && (
        <Show of={topics}>{(names) => names.length === 0 && <p>{t().topics.empty}</p>}</Show>
      )}
    </>
  );
}

interface Props {
  filters: Filters;
  cursor: string;
}

interface PagesProps extends Props {
  next: string | null | undefined;
  /** The name of the link to the next page. */
  name?: string;
}

function Pages({ filters, cursor, next, name = t().nextPage }: PagesProps) {
  const query = queryOf(filters);
  const to = filters.topic === "" ? [] : [filters.topic];
  return (
    <div class="buttons after">
      {cursor !== "" && <a href={hrefWith(query, "tasks", ...to)}>{t().firstPage}</a>}
      {next != null && <a href={hrefWith({ ...query, cursor: next }, "tasks", ...to)}>{name}</a>}
    </div>
  );
}

/** The tasks of all topics with an id or a key: one call looks at some of the topics. */
function FoundAnywhere({ filters, cursor }: Props) {
  const loaded = useLoaded(JSON.stringify([filters, cursor]), 0, (signal) =>
    call(
      "/delay/task/find",
      { ...findRequestOf(filters), ...(cursor !== "" && { cursor }) },
      signal,
    ),
  );
  const texts = t().tasks;
  return (
    <Show of={loaded}>
      {({ tasks, topics_seen, cursor: next }) => (
        <>
          <p role="status" class={tasks.length > 0 ? "quiet" : ""}>
            {tasks.length === 0 && `${texts.empty} `}
            {texts.topicsSeen(number(topics_seen))} {next != null && texts.remain}
          </p>
          {tasks.length > 0 && <List isMixed found={tasks} />}
          <Pages filters={filters} cursor={cursor} next={next} name={texts.goOn} />
          <Action name={t().reload} run={() => void loaded.reload()} />
        </>
      )}
    </Show>
  );
}

/** The tasks of a topic. What has no index is looked at again only on request. */
function Found({ filters, cursor }: Props) {
  const { topic, state, by, q } = filters;
  const isSlow = isScan(filters);
  const [selected, select] = useState<ReadonlySet<number>>(new Set());
  // Another page or filter has other tasks.
  const place = JSON.stringify([filters, cursor]);
  useEffect(() => select(new Set()), [place]);
  const isSelectable = (state === "scheduled" || state === "dead") && may.changeTopic(topic);
  const loaded = useLoaded(place, isSlow ? 0 : 5000, (signal) => {
    const page = { limit: PAGE, ...(cursor !== "" && { cursor }) };
    const { order } = filters;
    return by === "text" && q !== ""
      ? call("/delay/task/search", { topic, state, text: q, order, ...page }, signal)
      : call("/delay/task/list", { ...listRequestOf(filters), ...page }, signal);
  });
  const texts = t().tasks;
  return (
    <Show of={loaded}>
      {({ tasks, cursor: next, seen }) => (
        <>
          {tasks.length === 0 && <p>{next && !isSlow ? texts.emptyPage : texts.empty}</p>}
          {isSlow && (
            <p role="status" class="quiet">
              {texts.seen(number(seen ?? 0))} {next != null && texts.remain}
            </p>
          )}
          {tasks.length > 0 && (
            <>
              <dl class="fields">
                <Field name={texts.state}><State of={state} /></Field>
                <Field name={texts.topic}>
                  <a href={href("topics", topic)}>{topic}</a>
                </Field>
              </dl>
              <List
                found={tasks.map((task) => ({ topic, task }))}
                {...(isSelectable && { selection: { ids: selected, select } })}
              />
              {isSelectable && (
                <Chosen
                  topic={topic}
                  state={state}
                  ids={tasks.map(({ task_id }) => task_id).filter((id) => selected.has(id))}
                  reload={loaded.reload}
                />
              )}
            </>
          )}
          <Pages
            filters={filters}
            cursor={cursor}
            next={next}
            {...(isSlow && { name: texts.goOn })}
          />
          {isSlow && <Action name={t().reload} run={() => void loaded.reload()} />}
          {(tasks.length > 0 || next != null) && (
            <Matching filters={filters} reload={loaded.reload} />
          )}
        </>
      )}
    </Show>
  );
}
