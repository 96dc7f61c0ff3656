import type { Task } from "../../api/types";
import { t } from "../../text";
import { Exact } from "../../ui/exact";
import { When } from "../../ui/parts";
import { duration } from "../../view/format";
import { moment } from "../../view/time";
import { now } from "../../state/clock";
import { clockOffset } from "../../state/session";
import { segmentsOf, type Segment } from "./segments";

/** What happened to a task, in time order. */
export function Timeline({ of: task }: { of: Task }) {
  const texts = t().task;
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">{texts.timeline}</h2>
      <Segments of={task} />
      <ol class="timeline">
        <li>
          <When at={task.created_ms} /> <b>{texts.created}</b>
        </li>
        {task.log.map(({ attempt, started_ms, duration_ms, outcome, answer }) => (
          <li key={`${attempt}/${started_ms}`}>
            <When at={started_ms} /> <b>{texts.attempt(String(attempt))}</b>{" "}
            <span class="quiet">{texts.took(duration(duration_ms))}</span>
            {outcome != null && (
              <p>
                <Exact text={outcome} />
              </p>
            )}
            {answer != null && answer !== "" && (
              <details>
                <summary>{texts.answer}</summary>
                <pre tabIndex={0} dir="ltr" role="group" aria-label={texts.answer}>
                  <Exact text={answer} />
                </pre>
              </details>
            )}
          </li>
        ))}
        {task.finished_ms != null && (
          <li>
            <When at={task.finished_ms} /> <b>{t().states[task.state]}</b>
          </li>
        )}
      </ol>
      <p class="quiet small-text">{texts.logHelp}</p>
    </section>
  );
}

/** Parts that are shorter are drawn as if they were this share of the whole. */
const SHORTEST = 0.02;

/** Where the time went: a bar, and the same in words. */
function Segments({ of: task }: { of: Task }) {
  const texts = t().task;
  const found = segmentsOf(task, now.value + clockOffset.value);
  if (found.length === 0) return null;
  const lengthOf = ({ from, to }: Segment) => to - from;
  const all = found.reduce((sum, segment) => sum + lengthOf(segment), 0);
  const shares = found.map((segment) => Math.max(SHORTEST, lengthOf(segment) / all));
  const sum = shares.reduce((left, share) => left + share, 0);
  let at = 0;
  return (
    <div class="segments">
      <svg viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
        {found.map(({ kind }, index) => {
          const width = ((shares[index] ?? 0) / sum) * 1000;
          const x = at;
          at += width;
          return <rect class={kind} x={x} y={0} width={Math.max(1, width - 2)} height={12} />;
        })}
      </svg>
      <ul class="legend">
        {found.map((segment) => (
          <li key={`${segment.kind}/${segment.from}`} title={moment(segment.from)}>
            <i class={`swatch segment-${segment.kind}`} />
            {segment.attempt !== undefined && texts.segmentCall(String(segment.attempt))}
            {segment.kind !== "call" && texts.segments[segment.kind]}{" "}
            <b>{duration(lengthOf(segment))}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}
