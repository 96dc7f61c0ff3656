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

/** Tasks in the order of the service. `isMixed`: of several topics and states. */
export function List({ found, isMixed = false }: { found: Found[]; isMixed?: boolean }) {
  const texts = t().task;
  const text = (value: string | null | undefined) =>
    value == null ? <span class="quiet">–</span> : <Exact text={value} />;
  const has = (wanted: (task: TaskListed) => boolean) => found.some(({ task }) => wanted(task));
  const columns: (Column<Found> | false)[] = [
    { name: texts.id, cell: ({ topic, task }) => <TaskLink topic={topic} id={task.task_id} /> },
    isMixed && {
      name: texts.topic,
      cell: ({ topic }) => <a href={href("topics", topic)}>{topic}</a>,
    },
    isMixed && { name: texts.state, cell: ({ task }) => <State of={task.state} /> },
    { name: texts.due, cell: ({ task }) => <When at={task.due_ms} /> },
    has(({ state }) => hasEnded(state)) && {
      name: texts.finished,
      cell: ({ task }) => <When at={task.finished_ms} />,
    },
    has(({ state }) => state === "leased") && {
      name: texts.lease,
      cell: ({ task: { lease } }) => (lease == null ? "–" : texts.holders[lease]),
    },
    { name: texts.destination, cell: ({ task }) => text(task.sn ?? texts.modes[task.mode]) },
    { name: texts.attempts, isNumber: true, cell: ({ task }) => number(task.attempts) },
    { name: texts.lastOutcome, cell: ({ task }) => text(task.last_outcome) },
    { name: texts.key, cell: ({ task }) => text(task.key) },
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
