import type { ComponentChildren } from "preact";
import type { Overview } from "../../api/types";
import { t } from "../../text";
import { Field, When } from "../../ui/parts";
import { count, duration, number, percent } from "../../view/format";
import { TASK_STATES } from "../../view/states";
import { budgetLeft } from "./problems";

/** The last value of a figure of the series. */
export function lastOf({ last }: Overview, figure: string): number {
  const column = last.figures.indexOf(figure) + 1;
  return column === 0 ? 0 : (last.points.at(-1)?.[column] ?? 0);
}

interface TileProps {
  name: string;
  value: string;
  children?: ComponentChildren;
}

const Tile = ({ name, value, children }: TileProps) => (
  <div class="tile">
    <dt>{name}</dt>
    <dd>
      <b>{value}</b> {children && <span class="quiet">{children}</span>}
    </dd>
  </div>
);

/** What happens now: rates and slots. */
export function Rates({ of }: { of: Overview }) {
  const texts = t().overview;
  const rate = (figure: string) =>
    `${number((lastOf(of, figure) * 1000) / (of.last.step_ms || 1000), 1)}${t().perSecond}`;
  return (
    <section aria-labelledby="rates">
      <h2 id="rates">{texts.rates}</h2>
      <dl class="tiles">
        <Tile name={texts.added} value={rate("added")} />
        <Tile name={texts.calls} value={rate("calls")} />
        <Tile name={texts.failed} value={rate("failed_calls")} />
        <Tile name={texts.slots} value={number(lastOf(of, "calls_in_flight"))}>
          {texts.slotsOf(number(lastOf(of, "calls_limit")))}
        </Tile>
        <Tile
          name={texts.store}
          value={of.health.store_p99_ms == null ? "–" : duration(of.health.store_p99_ms)}
        />
        <Tile name={t().system.instances} value={number(of.instances)}>
          {texts.workersOf(number(of.workers))}
        </Tile>
      </dl>
    </section>
  );
}

/** The objective, and how much of its budget is left. */
export function Objective({ of }: { of: Overview }) {
  const texts = t().overview;
  const { lateness_ms, target, good, bad, late } = of.objective;
  const left = budgetLeft(of);
  return (
    <section aria-labelledby="objective">
      <h2 id="objective">{texts.objective}</h2>
      <p>{texts.objectiveText(percent(target, 3), duration(lateness_ms))}</p>
      {left === null ? (
        <p class="quiet">{texts.noTasksYet}</p>
      ) : (
        <>
          <p>
            {texts.budgetLeft}: <b>{percent(Math.max(0, left), 1)}</b>{" "}
            <meter min={0} max={1} value={Math.max(0, left)} aria-label={texts.budgetLeft} />
          </p>
          <p class="quiet">{texts.budgetOf(number(bad), number(good + bad))}</p>
        </>
      )}
      {late > 0 && <p>{texts.lateNow(number(late))}</p>}
    </section>
  );
}

/** The tasks of the store, by state. */
export const Backlog = ({ of }: { of: Overview }) => (
  <section aria-labelledby="backlog">
    <h2 id="backlog">{t().overview.backlog}</h2>
    <dl class="fields">
      {TASK_STATES.map((state) => (
        <Field name={t().states[state]}>
          {(of.complete ? "" : "≥") + number(of.tasks[state])}
        </Field>
      ))}
    </dl>
  </section>
);

/** The overdue tasks, by what delays them. */
export function Overdue({ of }: { of: Overview }) {
  const texts = t().overview;
  return (
    <section aria-labelledby="overdue">
      <h2 id="overdue">{texts.overdue}</h2>
      <div class="scroll" tabIndex={0} role="group" aria-labelledby="overdue">
        <table>
          <thead>
            <tr>
              <th scope="col">{texts.culprit}</th>
              <th scope="col" class="number">{texts.count}</th>
              <th scope="col">{texts.oldest}</th>
            </tr>
          </thead>
          <tbody>
            {of.overdue.map(({ culprit, count: tasks, cut, oldest_ms }) => (
              <tr key={culprit}>
                <th scope="row">{t().culprits[culprit] ?? culprit}</th>
                <td class="number">{count(tasks, cut)}</td>
                <td>
                  <When at={oldest_ms} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
