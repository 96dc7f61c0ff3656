import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import { newest, streams } from "../../api/live";
import type { Series } from "../../api/types";
import { t } from "../../text";
import { Chart, type Line } from "../../ui/chart";
import { Failure } from "../../ui/failure";
import { useLoaded } from "../../ui/loaded";
import { duration, number } from "../../view/format";

type Span = "5m" | "1h" | "24h";

/** How often each span is read again, in ms. The live stream extends the shortest one. */
const SPANS: Record<Span, number> = { "5m": 0, "1h": 10_000, "24h": 60_000 };
const POINTS = 300;

const CULPRITS = ["delayd", "receiver", "operator", "store", "consumer"] as const;
/** Nobody's: the jumps of a clock, and what was due before the start. */
const NOBODYS = ["clock", "unknown"] as const;

/** The points of a series, and those that the live stream sent since. */
function usePoints(series: Series | null, isExtended: boolean): number[][] {
  const [points, setPoints] = useState<number[][]>([]);
  useEffect(() => setPoints(series?.points ?? []), [series]);
  const last = newest.value?.last;
  useEffect(() => {
    if (!isExtended || !last) return;
    setPoints((before) => {
      const since = before.at(-1)?.[0] ?? 0;
      const added = last.points.filter(([at = 0]) => at > since);
      return added.length === 0 ? before : [...before, ...added].slice(-POINTS);
    });
  }, [last, isExtended]);
  return points;
}

/** The graphs, over a span that the user chooses. */
export function Graphs() {
  const [span, setSpan] = useState<Span>("5m");
  const every = SPANS[span];
  const loaded = useLoaded(`${span}/${streams.value}`, every, (signal) =>
    call("/delay/series", { span }, signal),
  );
  const series = loaded.data;
  const points = usePoints(series, every === 0);
  const texts = t().overview;
  return (
    <section aria-labelledby="graphs">
      <div class="heading">
        <h2 id="graphs">{texts.graphs}</h2>
        <label>
          <span class="quiet">{texts.span}</span>{" "}
          <select value={span} onChange={(event) => setSpan(event.currentTarget.value as Span)}>
            {(Object.keys(SPANS) as Span[]).map((name) => (
              <option value={name}>{texts.spans[name]}</option>
            ))}
          </select>
        </label>
      </div>
      {loaded.error && <Failure error={loaded.error} />}
      {series !== null && points.length === 0 && <p class="quiet">{texts.noFigures}</p>}
      {points.length > 0 && <Charts series={series} points={points} />}
    </section>
  );
}

function Charts({ series, points }: { series: Series | null; points: number[][] }) {
  const texts = t().overview;
  const figures = series?.figures ?? newest.value?.last.figures ?? [];
  const seconds = (series?.step_ms ?? 1000) / 1000;
  const times = points.map(([at = 0]) => at / 1000);
  const line = (figure: string, name: string, color: number, scale = 1, dash?: number[]): Line => {
    const column = figures.indexOf(figure) + 1;
    const values = points.map((point) => {
      const value = column === 0 ? undefined : point[column];
      return value === undefined ? null : value * scale;
    });
    return { name, color, values, ...(dash && { dash }) };
  };
  const whole = (value: number) => number(value, value < 10 ? 1 : 0);
  return (
    <div class="charts">
      <Chart
        title={texts.graphRates}
        times={times}
        text={whole}
        lines={[
          line("added", texts.added, 1, 1 / seconds),
          line("calls", texts.calls, 2, 1 / seconds),
          line("failed_calls", texts.failed, 3, 1 / seconds, [4, 3]),
        ]}
      />
      <Chart
        title={texts.graphLateness}
        times={times}
        text={duration}
        lines={[
          ...CULPRITS.map((culprit, at) =>
            line(`lateness_${culprit}_ms`, t().culprits[culprit] ?? culprit, at + 1),
          ),
          ...NOBODYS.map((cause, at) =>
            line(`lateness_${cause}_ms`, t().culprits[cause] ?? cause, at + 1, 1, [2, 3]),
          ),
        ]}
      />
      <Chart
        title={texts.graphBacklog}
        times={times}
        text={whole}
        lines={[
          line("scheduled", t().states.scheduled, 1),
          line("leased", t().states.leased, 2),
          line("dead", t().states.dead, 3, 1, [4, 3]),
        ]}
      />
      <Chart
        title={texts.graphSlots}
        times={times}
        text={whole}
        lines={[
          line("calls_in_flight", texts.slots, 1),
        ]}
      />
    </div>
  );
}
