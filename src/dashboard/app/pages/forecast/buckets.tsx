import type { Forecasts } from "../../api/types";
import { t } from "../../text";
import { Chart, type Line } from "../../ui/chart";
import { Table } from "../../ui/table";
import { count, number } from "../../view/format";
import { moment } from "../../view/time";
import { nameOf, PULLED, rate } from "./figures";

/** The services with bars of their own. The theme has as many colours, and one for the others. */
const OWN = 3;
const OTHERS_COLOR = 4;
const CAPACITY_COLOR = 5;

interface Part {
  name: string;
  color: number;
  values: number[];
}

/** The buckets of the first services, and of all others together. */
function partsOf({ total, services }: Forecasts): Part[] {
  const own = services.slice(0, OWN).map(({ sn, figures }, at) => ({
    name: nameOf(sn),
    color: at + 1,
    values: figures.buckets,
  }));
  const others = total.buckets.map((sum, at) =>
    own.reduce((left, { values }) => left - (values[at] ?? 0), sum),
  );
  const hasOthers = services.length > OWN || others.some((value) => value > 0);
  const name = t().forecast.others;
  return hasOthers ? [...own, { name, color: OTHERS_COLOR, values: others }] : own;
}

/** The bars of each part end where those of the part below it begin. The highest are drawn first. */
function stacked(parts: Part[]): Line[] {
  let below: number[] = [];
  const lines = parts.map(({ name, color, values }) => {
    const bars = values.map((value, at) => value + (below[at] ?? 0));
    below = bars;
    return { name, color, values, bars };
  });
  return lines.reverse();
}

/** What falls due when: a graph, and a table with the same figures. */
export function Buckets({ of: forecasts }: { of: Forecasts }) {
  const { at_ms, bucket_ms, total, complete } = forecasts;
  const texts = t().forecast;
  const capacity =
    total.calls_per_second == null ? null : (total.calls_per_second * bucket_ms) / 1000;
  const parts = partsOf(forecasts);
  const starts = total.buckets.map((_, at) => at_ms + at * bucket_ms);
  // The last bar ends at a moment of its own.
  const times = [...starts, at_ms + starts.length * bucket_ms].map((at) => at / 1000);
  const lines: Line[] = stacked(parts);
  if (capacity !== null) {
    const values = times.map(() => capacity);
    lines.push({ name: texts.capacity, color: CAPACITY_COLOR, dash: [6, 4], values });
  }
  // Nobody calls pulled tasks.
  const pulled = forecasts.services.find(({ sn }) => sn === PULLED)?.figures.buckets ?? [];
  const called = total.buckets.map((value, at) => value - (pulled[at] ?? 0));
  const above = called.filter((value) => capacity !== null && value > capacity).length;
  return (
    <section aria-labelledby="buckets">
      <h2 id="buckets">{texts.byTime}</h2>
      {capacity === null && <p class="quiet">{texts.noCapacity}</p>}
      {above > 0 && <p>{texts.above(number(above))}</p>}
      <Chart title={texts.graph} times={times} lines={lines} text={rate} first />
      <Table
        label={texts.byTime}
        rows={starts.map((start, at) => ({ start, at }))}
        id={({ at }) => String(at)}
        columns={[
          { name: texts.from, cell: ({ start }) => moment(start) },
          {
            name: texts.tasks,
            isNumber: true,
            cell: ({ at }) => count(total.buckets[at] ?? 0, !complete),
          },
          ...parts.map(({ name, values }) => ({
            name,
            isMinor: true,
            isNumber: true,
            cell: ({ at }: { at: number }) => number(values[at] ?? 0),
          })),
          { name: texts.capacity, isNumber: true, cell: () => rate(capacity) },
        ]}
      />
    </section>
  );
}
