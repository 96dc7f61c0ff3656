// Small parts that several pages use.
import type { ComponentChildren } from "preact";
import { now } from "../state/clock";
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
