// Small parts that several pages use.
import type { ComponentChildren } from "preact";
import type { TaskState } from "../api/types";
import { now } from "../state/clock";
import { href } from "../state/route";
import { clockOffset } from "../state/session";
import { t } from "../text";
import { age } from "../view/format";
import { moment } from "../view/time";

export type Tone = "good" | "warn" | "bad" | "plain";

/** A short state. Its text carries the meaning, not only its colour. */
export const Badge = ({ tone, children }: { tone: Tone; children: ComponentChildren }) => (
  <span class={`badge ${tone}`}>{children}</span>
);

/** A point in time, with its distance in the tooltip. */
export function When({ at }: { at: number | null | undefined }) {
  if (at === null || at === undefined) return <span class="quiet">–</span>;
  return <time dateTime={new Date(at).toISOString()}>{moment(at)}</time>;
}

/** How long ago the service wrote a time. */
export const Ago = ({ at }: { at: number }) => (
  <>{t().ago(age(now.value + clockOffset.value - at))}</>
);

export const Field = ({ name, children }: { name: string; children: ComponentChildren }) => (
  <div class="field">
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);

/** How a state of a task is shown. */
const STATES: Record<TaskState, Tone> = {
  scheduled: "plain",
  leased: "warn",
  delivered: "good",
  dead: "bad",
  cancelled: "plain",
  expired: "warn",
};

export const State = ({ of }: { of: TaskState }) => (
  <Badge tone={STATES[of]}>{t().states[of]}</Badge>
);

export const TaskLink = ({ topic, id }: { topic: string; id: number }) => (
  <a class="whole" href={href("task", topic, String(id))}>{String(id)}</a>
);

interface ActionProps {
  name: string;
  /** What it acts on, for those who hear the name without the row. */
  on?: string;
  isSmall?: boolean;
  run: () => void;
}

/** A button that acts, or asks first. */
export const Action = ({ name, on, isSmall = false, run }: ActionProps) => (
  <button
    type="button"
    class={isSmall ? "small" : ""}
    {...(on !== undefined && { "aria-label": `${name} ${on}` })}
    onClick={run}
  >
    {name}
  </button>
);
