import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { shownTheme, zone } from "../state/preferences";
import { clock, dayAndClock, zoneName } from "../view/time";

export interface Line {
  name: string;
  /** The number of its colour in the theme, from 1. */
  color: number;
  dash?: number[];
  values: (number | null)[];
  /** The tops of its bars, from each time to the next. Without them, it is drawn as a line. */
  bars?: number[];
}

interface Props {
  title: string;
  /** Unix seconds. */
  times: number[];
  lines: Line[];
  text: (value: number) => string;
  /** Whether the legend shows the first values, unless the pointer is on the graph. */
  first?: boolean;
}

const HEIGHT = 150;
/** The width of a character of the axis. */
const CHARACTER = 6.5;
/** A value that is so many times the median of the others flattens them on a linear scale. */
const SPIKE = 20;
/** The axis of a longer time shows dates, in seconds. */
const LONG = 36 * 3600;
const style = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A graph over time. Its legend shows the values under the pointer, or the last ones. */
export function Chart({ title, times, lines, text, first }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [pointed, setPointed] = useState<number | null>(null);
  const theme = shownTheme();
  const shownZone = zone.value;
  const shape = lines.map(({ name, color }) => `${name}/${color}`).join();
  const write = useRef(text);
  write.current = text;
  const isLong = (times.at(-1) ?? 0) - (times[0] ?? 0) > LONG;
  const isSteep = hasSpike(lines);
  const data: uPlot.AlignedData = [times, ...lines.map(({ values, bars }) => bars ?? values)];

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const axis = { stroke: style("--quiet"), grid: { stroke: style("--line"), width: 1 } };
    const font = { font: "11px system-ui, sans-serif", ticks: { show: false } };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: {
          x: { time: true },
          y: {
            range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1],
            // Linear below 1, and logarithmic above.
            ...(isSteep && { distr: 4, asinh: 1 }),
          },
        },
        tzDate: (at) =>
          uPlot.tzDate(new Date(at * 1000), shownZone === "utc" ? "Etc/UTC" : ownZone),
        axes: [
          {
            ...axis,
            ...font,
            size: 26,
            space: isLong ? 95 : 75,
            values: (_, splits) =>
              splits.map((at) =>
                isLong ? dayAndClock(at * 1000) : clock(at * 1000, needsSeconds(splits)),
              ),
          },
          {
            ...axis,
            ...font,
            size: (_, values) => Math.max(62, 14 + CHARACTER * longest(values ?? [])),
            // A steep scale has splits without a text. The types of uPlot do not say so.
            values: (_, splits: (number | null)[]) =>
              splits.map((value) => (value === null ? "" : write.current(value))),
          },
        ],
        series: [
          {},
          ...lines.map(({ color, dash, bars }) => ({
            stroke: style(`--graph-${color}`),
            width: 1.5,
            points: { show: false },
            ...(dash && { dash }),
            ...(bars && { ...asBars, fill: style(`--graph-${color}`) }),
          })),
        ],
        hooks: { setCursor: [(self) => setPointed(self.cursor.idx ?? null)] },
      },
      data,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => {
      made.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme, shownZone, shape, isLong, isSteep]);

  useEffect(() => plot.current?.setData(data));

  const unpointed = first ? 0 : times.length - 1;
  const at = pointed !== null && pointed < times.length ? pointed : unpointed;
  const moment = times[at];
  const valueOf = ({ values }: Line) => {
    const value = values[at];
    return value === null || value === undefined ? "–" : text(value);
  };
  const summary = lines.map((line) => `${line.name}: ${valueOf(line)}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong>{" "}
        {moment !== undefined && (
          <span class="quiet">
            {(isLong ? dayAndClock : clock)(moment * 1000)} {zoneName(moment * 1000)}
          </span>
        )}
      </figcaption>
      <div ref={box} role="img" aria-label={`${title}. ${summary}`} />
      <ul class="legend" aria-hidden="true">
        {lines.map((line) => (
          <li>
            <i class={`swatch graph-${line.color}${line.dash ? " dashed" : ""}`} />
            {line.name} <b>{valueOf(line)}</b>
          </li>
        ))}
      </ul>
    </figure>
  );
}

const longest = (texts: string[]): number => Math.max(0, ...texts.map(({ length }) => length));

/** Whether a linear scale would hide all values but the largest ones. */
function hasSpike(lines: Line[]): boolean {
  const values = lines.flatMap(({ values }) => values.filter((value) => (value ?? 0) > 0));
  const sorted = (values as number[]).sort((a, b) => a - b);
  return (sorted.at(-1) ?? 0) > SPIKE * (sorted[sorted.length >> 1] ?? 0);
}

const asBars = { width: 0, paths: uPlot.paths.bars!({ size: [0.9, Infinity], align: 1 }) };

const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

const needsSeconds = (splits: number[]): boolean => splits.some((at) => at % 60 !== 0);
