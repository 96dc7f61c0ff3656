import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { shownTheme, zone } from "../state/preferences";
import { clock, zoneName } from "../view/time";

export interface Line {
  name: string;
  /** The number of its colour in the theme, from 1. */
  color: number;
  dash?: number[];
  values: (number | null)[];
}

interface Props {
  title: string;
  /** Unix seconds. */
  times: number[];
  lines: Line[];
  text: (value: number) => string;
}

const HEIGHT = 150;
const style = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A graph over time. Its legend shows the values under the pointer, or the last ones. */
export function Chart({ title, times, lines, text }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [pointed, setPointed] = useState<number | null>(null);
  const theme = shownTheme();
  const shownZone = zone.value;
  const shape = lines.map(({ name, color }) => `${name}/${color}`).join();
  const write = useRef(text);
  write.current = text;
  const data: uPlot.AlignedData = [times, ...lines.map(({ values }) => values)];

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
        scales: { x: { time: true }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        tzDate: (at) =>
          uPlot.tzDate(new Date(at * 1000), shownZone === "utc" ? "Etc/UTC" : ownZone),
        axes: [
          {
            ...axis,
            ...font,
            size: 26,
            space: 75,
            values: (_, splits) => splits.map((at) => clock(at * 1000, needsSeconds(splits))),
          },
          {
            ...axis,
            ...font,
            size: 62,
            values: (_, splits) => splits.map((value) => write.current(value)),
          },
        ],
        series: [
          {},
          ...lines.map(({ color, dash }) => ({
            stroke: style(`--graph-${color}`),
            width: 1.5,
            points: { show: false },
            ...(dash && { dash }),
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
  }, [theme, shownZone, shape]);

  useEffect(() => plot.current?.setData(data));

  const at = pointed !== null && pointed < times.length ? pointed : times.length - 1;
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
          <span class="quiet">{clock(moment * 1000)} {zoneName(moment * 1000)}</span>
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

const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

const needsSeconds = (splits: number[]): boolean => splits.some((at) => at % 60 !== 0);
