interface Props {
  /** The oldest first. */
  values: number[];
  /** What it shows, for those who do not see it. */
  label: string;
}

const WIDTH = 96;
const HEIGHT = 22;

/** A small graph without axes. The highest value reaches the top. */
export function Sparkline({ values, label }: Props) {
  const top = Math.max(1, ...values);
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, at) => {
    const y = HEIGHT - 1 - (value / top) * (HEIGHT - 2);
    return `${(at * step).toFixed(1)},${y.toFixed(1)}`;
  });
  return (
    <svg class="sparkline" role="img" aria-label={label} viewBox={`0 0 ${WIDTH} ${HEIGHT}`}>
      <polyline points={points.join(" ")} />
    </svg>
  );
}
