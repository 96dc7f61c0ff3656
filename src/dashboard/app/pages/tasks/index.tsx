import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { TaskListed, TaskState } from "../../api/types";
import { zone } from "../../state/preferences";
import { goWith, href, hrefWith, route, type Query } from "../../state/route";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { Show, useLoaded } from "../../ui/loaded";
import { Field, State, TaskLink, When } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { number } from "../../view/format";
import { TASK_STATES } from "../../view/states";
import { inputOf, momentOf, zoneName } from "../../view/time";

const PAGE = 50;

/** The filters as the address has them. */
interface Filters {
  topic: string;
  state: TaskState;
  /** Unix seconds, or "". */
  from: string;
  to: string;
}

function filtersOf(topic: string, { state, from = "", to = "" }: Query): Filters {
  const isNumber = (text: string) => text !== "" && Number.isFinite(Number(text));
  return {
    topic,
    state: TASK_STATES.find((one) => one === state) ?? "scheduled",
    from: isNumber(from) ? from : "",
    to: isNumber(to) ? to : "",
  };
}

/** The tasks of a topic in one state. The address holds the filters and the page. */
export function Tasks({ topic }: { topic: string }) {
  const { query } = route.value;
  const filters = filtersOf(topic, query);
  return (
    <>
      <FilterForm filters={filters} key={zone.value} />
      {topic !== "" && <Found filters={filters} cursor={query["cursor"] ?? ""} />}
    </>
  );
}

/** What a field shows for Unix seconds. */
const inputOfSeconds = (seconds: string): string =>
  seconds === "" ? "" : inputOf(Number(seconds) * 1000);

/** The name of the zone at the time in a field, or now. */
function zoneAt(time: string): string {
  const ms = momentOf(time);
  return zoneName(Number.isNaN(ms) ? Date.now() : ms);
}

/** In another zone the same digits are another time, so a change of the zone fills it again. */
function FilterForm({ filters }: { filters: Filters }) {
  const [topic, setTopic] = useState(filters.topic);
  const [state, setState] = useState(filters.state);
  const [from, setFrom] = useState(inputOfSeconds(filters.from));
  const [to, setTo] = useState(inputOfSeconds(filters.to));
  // The address may change without the form. A new form would lose the focus.
  useEffect(() => {
    setTopic(filters.topic);
    setState(filters.state);
    setFrom(inputOfSeconds(filters.from));
    setTo(inputOfSeconds(filters.to));
  }, [filters.topic, filters.state, filters.from, filters.to]);
  const texts = t().tasks;
  const secondsOf = (time: string) => {
    const ms = momentOf(time);
    return Number.isNaN(ms) ? "" : String(ms / 1000);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    const query = { state, from: secondsOf(from), to: secondsOf(to) };
    if (topic.trim() !== "") goWith(query, "tasks", topic.trim());
  };
  const times = { type: "datetime-local", step: 1 } as const;
  return (
    <form class="find" onSubmit={submit} noValidate>
      <label>
        {texts.topic}
        <input
          autocomplete="off"
          spellcheck={false}
          required
          value={topic}
          onInput={(event) => setTopic(event.currentTarget.value)}
        />
      </label>
      <label>
        {texts.state}
        <select
          value={state}
          onChange={(event) => setState(event.currentTarget.value as TaskState)}
        >
          {TASK_STATES.map((one) => (
            <option value={one}>{t().states[one]}</option>
          ))}
        </select>
      </label>
      <label>
        {texts.from(zoneAt(from))}
        <input {...times} value={from} onInput={(event) => setFrom(event.currentTarget.value)} />
      </label>
      <label>
        {texts.to(zoneAt(to))}
        <input {...times} value={to} onInput={(event) => setTo(event.currentTarget.value)} />
      </label>
      <button type="submit">{texts.show}</button>
    </form>
  );
}

function Found({ filters, cursor }: { filters: Filters; cursor: string }) {
  const { topic, state, from, to } = filters;
  const query = { state, from, to };
  const loaded = useLoaded(JSON.stringify([filters, cursor]), 5000, (signal) =>
    call(
      "/delay/task/list",
      {
        topic,
        state,
        limit: PAGE,
        ...(from !== "" && { from: Number(from) }),
        ...(to !== "" && { to: Number(to) }),
        ...(cursor !== "" && { cursor }),
      },
      signal,
    ),
  );
  const texts = t().tasks;
  return (
    <Show of={loaded}>
      {({ tasks, cursor: next }) => (
        <>
          {tasks.length === 0 && <p>{next ? texts.emptyPage : texts.empty}</p>}
          {tasks.length > 0 && <List topic={topic} state={state} tasks={tasks} />}
          <div class="buttons after">
            {cursor !== "" && <a href={hrefWith(query, "tasks", topic)}>{t().firstPage}</a>}
            {next && (
              <a href={hrefWith({ ...query, cursor: next }, "tasks", topic)}>{t().nextPage}</a>
            )}
          </div>
        </>
      )}
    </Show>
  );
}

interface ListProps {
  topic: string;
  state: TaskState;
  tasks: TaskListed[];
}

function List({ topic, state, tasks }: ListProps) {
  const texts = t().task;
  const isWaiting = state === "scheduled" || state === "leased";
  const text = (value: string | null | undefined) =>
    value == null ? <span class="quiet">–</span> : <Exact text={value} />;
  const columns: (Column<TaskListed> | false)[] = [
    { name: texts.id, cell: ({ task_id }) => <TaskLink topic={topic} id={task_id} /> },
    { name: texts.due, cell: ({ due_ms }) => <When at={due_ms} /> },
    !isWaiting && { name: texts.finished, cell: ({ finished_ms }) => <When at={finished_ms} /> },
    state === "leased" && {
      name: texts.lease,
      cell: ({ lease }) => (lease == null ? "–" : texts.holders[lease]),
    },
    { name: texts.destination, cell: ({ sn, mode }) => text(sn ?? texts.modes[mode]) },
    { name: texts.attempts, isNumber: true, cell: ({ attempts }) => number(attempts) },
    { name: texts.lastOutcome, cell: ({ last_outcome }) => text(last_outcome) },
    { name: texts.key, cell: ({ key }) => text(key) },
  ];
  return (
    <>
      <dl class="fields">
        <Field name={t().tasks.state}><State of={state} /></Field>
        <Field name={t().tasks.topic}>
          <a href={href("topics", topic)}>{topic}</a>
        </Field>
      </dl>
      <Table
        label={t().pages.tasks}
        rows={tasks}
        id={({ task_id }) => String(task_id)}
        columns={columns.filter((column) => column !== false)}
      />
    </>
  );
}
