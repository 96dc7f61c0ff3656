// What the page of tasks searches, as the address has it.
import type { RequestOf, TaskState } from "../../api/types";
import type { Query } from "../../state/route";
import { may } from "../../state/session";
import { TASK_STATES } from "../../view/states";

/** In what the text is searched: the first three look in all topics. */
export const FIELDS = ["id", "key", "idempotency_key", "sn", "outcome", "text"] as const;
export type By = (typeof FIELDS)[number];

export interface Filters {
  topic: string;
  /** The text that is searched; without it, `by` means nothing. */
  q: string;
  by: By;
  state: TaskState;
  /** Unix seconds, or "". */
  from: string;
  to: string;
  order: "newest" | "oldest";
}

const isNumber = (text: string) => text !== "" && Number.isFinite(Number(text));

export function filtersOf(topic: string, query: Query): Filters {
  const { state, from = "", to = "", q = "", by, order } = query;
  return {
    topic,
    q,
    by: FIELDS.find((one) => one === by) ?? "id",
    state: TASK_STATES.find((one) => one === state) ?? "scheduled",
    from: isNumber(from) ? from : "",
    to: isNumber(to) ? to : "",
    order: order === "oldest" ? "oldest" : "newest",
  };
}

/** Only the filters that count. */
export function queryOf(filters: Filters): Query {
  const { q, by, state, from, to, order } = filters;
  const searched: Query = q === "" ? {} : { by, q };
  if (isInAllTopics(filters)) return searched;
  const period: Query = hasPeriod(filters) ? { from, to } : {};
  return { ...searched, state, ...period, order: order === "newest" ? "" : order };
}

export const isInAllTopics = ({ by, q }: Pick<Filters, "by" | "q">): boolean =>
  q !== "" && (by === "id" || by === "key" || by === "idempotency_key");

/** A search in contents takes no period. */
export const hasPeriod = ({ by, q }: Pick<Filters, "by" | "q">): boolean =>
  q === "" || by !== "text";

/** Whether the service looks at tasks one by one, because there is no index. */
export const isScan = ({ by, q }: Filters): boolean =>
  q !== "" && (by === "sn" || by === "outcome" || by === "text");

/** The fields that the token may search. */
export const searchable = (): By[] =>
  FIELDS.filter((by) => {
    if (by === "text") return may.searchContents();
    if (by === "outcome") return may.readOutcomes();
    return by === "sn" || may.readAll();
  });

/** The filter of a list by its service or outcome. */
const filterOf = ({ by, q }: Filters) => ({
  ...(q !== "" && by === "sn" && { sn: q }),
  ...(q !== "" && by === "outcome" && { outcome: q }),
});

export const findRequestOf = ({ by, q }: Filters): RequestOf<"/delay/task/find"> =>
  by === "id" ? { task_id: q } : by === "key" ? { key: q } : { idempotency_key: q };

export function listRequestOf(filters: Filters): RequestOf<"/delay/task/list"> {
  const { topic, state, order, from, to } = filters;
  return {
    topic,
    state,
    order,
    ...filterOf(filters),
    ...(from !== "" && { from: Number(from) }),
    ...(to !== "" && { to: Number(to) }),
  };
}

/** What a change of all tasks of a list selects. */
export type Matching = Pick<
  RequestOf<"/delay/task/cancel_many">,
  "topic" | "task_ids" | "sn" | "outcome" | "due_from" | "due_to" | "all"
>;

/**
 * The filter of a change of exactly the tasks that are listed; null if there is none. The period of
 * a list of dead tasks is that of their end, which a change cannot select.
 */
export function matchingOf(filters: Filters): Matching | null {
  const { topic, state, from, to, by, q } = filters;
  const isPeriod = from !== "" || to !== "";
  if (q !== "" && by !== "sn" && by !== "outcome") return null;
  if (state !== "scheduled" && (state !== "dead" || isPeriod)) return null;
  const filter = {
    ...filterOf(filters),
    ...(from !== "" && { due_from: Number(from) }),
    ...(to !== "" && { due_to: Number(to) }),
  };
  return Object.keys(filter).length === 0 ? { topic, all: true } : { topic, ...filter };
}
