import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../api/client";
import type { AnswerOf, TopicListed, TopicSort } from "../api/types";
import { dialog, ask } from "../state/dialog";
import { goInstead, href, hrefWith, route, type Query } from "../state/route";
import { may } from "../state/session";
import { t } from "../text";
import { Show, useLoaded } from "../ui/loaded";
import { Action, Ago, When } from "../ui/parts";
import { Sparkline } from "../ui/sparkline";
import { Table } from "../ui/table";
import { number } from "../view/format";
import { pause, resume } from "./topic/changes";
import { TopicState } from "./topic/state";

const PAGE = 50;

/** How long the search waits for the next key, in ms. */
const TYPING = 250;

const SORTS: TopicSort[] = ["name", "next_due", "oldest_overdue", "pending", "dead"];

/** The filters as the address has them. */
interface Filters {
  match: string;
  sort: TopicSort;
}

const filtersOf = ({ match = "", sort }: Query): Filters => ({
  match,
  sort: SORTS.find((one) => one === sort) ?? "name",
});

/** The address has no order if it is that of the names. */
const queryOf = ({ match, sort }: Filters): Query => ({ match, sort: sort === "name" ? "" : sort });

/** A page of the topics that the token covers. The address holds the filters and the page. */
export function Topics() {
  const { query } = route.value;
  const filters = filtersOf(query);
  const { match, sort } = filters;
  const cursor = query["cursor"] ?? "";
  const loaded = useLoaded(JSON.stringify([filters, cursor]), 5000, (signal) =>
    call(
      "/delay/topic/list",
      {
        sort,
        limit: PAGE,
        trend: true,
        ...(match !== "" && { match }),
        ...(cursor !== "" && { cursor }),
      },
      signal,
    ),
  );
  return (
    <>
      <FilterForm filters={filters} />
      <Show of={loaded}>
        {(page) => (
          <List page={page} filters={filters} isFirst={cursor === ""} reload={loaded.reload} />
        )}
      </Show>
    </>
  );
}

function FilterForm({ filters }: { filters: Filters }) {
  const [match, setMatch] = useState(filters.match);
  const typing = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  // The address may change without the form.
  useEffect(() => setMatch(filters.match), [filters.match]);
  useEffect(() => () => clearTimeout(typing.current), []);
  const search = (changed: Partial<Filters>) => {
    clearTimeout(typing.current);
    // A change of the address would close the question.
    if (dialog.peek() !== null) typing.current = setTimeout(() => search(changed), TYPING);
    else goInstead(queryOf({ ...filters, match: match.trim(), ...changed }), "topics");
  };
  const type = (text: string) => {
    setMatch(text);
    clearTimeout(typing.current);
    typing.current = setTimeout(() => search({ match: text.trim() }), TYPING);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    search({});
  };
  const texts = t().topics;
  return (
    <form class="find" onSubmit={submit} noValidate>
      <label>
        {t().search}
        <input
          type="search"
          value={match}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => type(event.currentTarget.value)}
        />
      </label>
      <label>
        {texts.sort}
        <select
          value={filters.sort}
          onChange={(event) => search({ sort: event.currentTarget.value as TopicSort })}
        >
          {SORTS.map((one) => (
            <option value={one}>{texts.sorts[one]}</option>
          ))}
        </select>
      </label>
    </form>
  );
}

interface ListProps {
  page: AnswerOf<"/delay/topic/list">;
  filters: Filters;
  isFirst: boolean;
  reload: () => Promise<void>;
}

const name = ({ topic }: TopicListed) => <a href={href("topics", topic)}>{topic}</a>;

/** The service sorts: the page has only some of the topics. */
function List({ page, filters, isFirst, reload }: ListProps) {
  const { topics, total, cursor } = page;
  const texts = t().topics;
  const query = queryOf(filters);
  const counted = (count: number | undefined) =>
    count === undefined ? <span class="quiet">–</span> : number(count);
  return (
    <>
      <p class="quiet" role="status">
        {topics.length > 0
          ? t().shownOf(number(topics.length), number(total ?? 0))
          : !isFirst
            ? texts.emptyPage
            : filters.match === ""
              ? texts.empty
              : texts.noMatch}
      </p>
      {topics.length > 0 && (
        <Table
          label={t().pages.topics}
          rows={topics}
          id={({ topic }) => topic}
          columns={[
            { name: texts.topic, cell: name },
            {
              name: texts.state,
              cell: (topic) => <TopicState of={topic} />,
            },
            {
              name: texts.waiting,
              isNumber: true,
              cell: ({ counts }) => counted(counts ? counts.scheduled + counts.leased : undefined),
            },
            { name: texts.trend, isMinor: true, cell: (topic) => <Trend of={topic} /> },
            {
              name: t().topic.nextDue,
              isMinor: true,
              cell: ({ next_due_ms }) => <When at={next_due_ms} />,
            },
            {
              name: t().topic.oldestOverdue,
              isMinor: true,
              cell: ({ oldest_overdue_ms }) => <When at={oldest_overdue_ms} />,
            },
            { name: texts.dead, isNumber: true, cell: ({ counts }) => counted(counts?.dead) },
            {
              name: texts.shards,
              isMinor: true,
              isNumber: true,
              cell: ({ shards }) => number(shards),
            },
            {
              name: texts.action,
              isMinor: true,
              cell: (topic) =>
                may.changeTopic(topic.topic) && <Change topic={topic} reload={reload} />,
            },
          ]}
        />
      )}
      <div class="buttons after">
        {!isFirst && <a href={hrefWith(query, "topics")}>{t().firstPage}</a>}
        {cursor != null && <a href={hrefWith({ ...query, cursor }, "topics")}>{t().nextPage}</a>}
      </div>
      {filters.sort !== "name" && <SortedAsOf at={page.sorted_as_of_ms ?? 0} />}
    </>
  );
}

/** The waiting tasks of the last half hour, and of now. */
function Trend({ of: { trend, counts } }: { of: TopicListed }) {
  const now = counts ? [counts.scheduled + counts.leased] : [];
  const values = [...(trend ?? []), ...now];
  const [first, last] = [values[0], values.at(-1)];
  if (values.length < 2 || first === undefined || last === undefined) {
    return <span class="quiet">–</span>;
  }
  return <Sparkline values={values} label={t().topics.trendOf(number(first), number(last))} />;
}

/** The order by counts or times follows samples. */
const SortedAsOf = ({ at }: { at: number }) => (
  <p class="quiet small-text">
    {at === 0 ? (
      t().topics.notAllCounted
    ) : (
      <>
        {t().topics.sortedAsOf} <Ago at={at} />
      </>
    )}
  </p>
);

interface ChangeProps {
  topic: TopicListed;
  reload: () => Promise<void>;
}

function Change({ topic: { topic, paused }, reload }: ChangeProps) {
  const question = () => (paused ? resume(topic, reload) : pause(topic, reload));
  const name = paused ? t().topics.resume : t().topics.pause;
  return <Action isSmall name={name} on={topic} run={() => ask(question())} />;
}
