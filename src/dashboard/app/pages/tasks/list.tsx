import type { TaskListed } from "../../api/types";
import { href } from "../../state/route";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { State, TaskLink, When } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { number } from "../../view/format";
import { hasEnded } from "../../view/states";

export interface Found {
  topic: string;
  task: TaskListed;
}

interface Props {
  found: Found[];
  /** Of several topics and states. */
  isMixed?: boolean;
  /** The ids that are selected, and how that changes; without it, none can be. */
  selection?: { ids: ReadonlySet<number>; select: (ids: ReadonlySet<number>) => void };
}

/** Tasks in the order of the service. */
export function List({ found, isMixed = false, selection }: Props) {
  const texts = t().task;
  const text = (value: string | null | undefined) =>
    value == null ? <span class="quiet">–</span> : <Exact text={value} />;
  const has = (wanted: (task: TaskListed) => boolean) => found.some(({ task }) => wanted(task));
  const isOver = has(({ state }) => hasEnded(state));
  const columns: (Column<Found> | false)[] = [
    selection !== undefined && {
      name: t().tasks.selectAll,
      head: <SelectAll of={selection} found={found} />,
      cell: ({ task: { task_id } }) => <Select of={selection} id={task_id} />,
    },
    { name: texts.id, cell: ({ topic, task }) => <TaskLink topic={topic} id={task.task_id} /> },
    isMixed && {
      name: texts.topic,
      cell: ({ topic }) => <a href={href("topics", topic)}>{topic}</a>,
    },
    isMixed && { name: texts.state, cell: ({ task }) => <State of={task.state} /> },
    {
      name: texts.due,
      isMinor: isMixed || isOver,
      cell: ({ task }) => <When at={task.due_ms} />,
    },
    isOver && {
      name: texts.finished,
      isMinor: isMixed,
      cell: ({ task }) => <When at={task.finished_ms} />,
    },
    has(({ state }) => state === "leased") && {
      name: texts.lease,
      isMinor: true,
      cell: ({ task: { lease } }) => (lease == null ? "–" : texts.holders[lease]),
    },
    {
      name: texts.destination,
      isMinor: true,
      cell: ({ task }) => text(task.sn ?? texts.modes[task.mode]),
    },
    {
      name: texts.attempts,
      isMinor: true,
      isNumber: true,
      cell: ({ task }) => number(task.attempts),
    },
    { name: texts.lastOutcome, isMinor: true, cell: ({ task }) => text(task.last_outcome) },
    { name: texts.key, isMinor: true, cell: ({ task }) => text(task.key) },
  ];
  return (
    <Table
      label={t().pages.tasks}
      rows={found}
      id={({ topic, task }) => JSON.stringify([topic, task.task_id])}
      columns={columns.filter((column) => column !== false)}
    />
  );
}

type Selection = NonNullable<Props["selection"]>;

function Select({ of: { ids, select }, id }: { of: Selection; id: number }) {
  const change = (isOn: boolean) => {
    const changed = new Set(ids);
    if (isOn) changed.add(id);
    else changed.delete(id);
    select(changed);
  };
  return (
    <input
      type="checkbox"
      aria-label={t().tasks.select(String(id))}
      checked={ids.has(id)}
      onChange={(event) => change(event.currentTarget.checked)}
    />
  );
}

function SelectAll({ of: { ids, select }, found }: { of: Selection; found: Found[] }) {
  const all = found.map(({ task }) => task.task_id);
  return (
    <input
      type="checkbox"
      aria-label={t().tasks.selectAll}
      checked={all.every((id) => ids.has(id))}
      onChange={(event) => select(new Set(event.currentTarget.checked ? all : []))}
    />
  );
}
