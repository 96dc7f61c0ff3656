"""Draws the curves of the capacity model as SVG: a panel for each number of lanes, a line for each
rate, over the number of instances."""

from math import log10

RATES = [(20, "20 tasks/s", "low"), (1_000, "1,000 tasks/s", "middle"),
         (10_000, "10,000 tasks/s", "high")]
WIDTH, HEIGHT = 250, 220
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 84, 46

STYLE = """
  .title { font: 600 15px system-ui, sans-serif; fill: #1f2328 }
  .name { font: 600 12px system-ui, sans-serif; fill: #1f2328 }
  .text { font: 11px system-ui, sans-serif; fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .axis { stroke: #818b98; stroke-width: 1 }
  .low { stroke: #1a7f37; fill: #1a7f37 }
  .middle { stroke: #0969da; fill: #0969da }
  .high { stroke: #bc4c00; fill: #bc4c00 }
  path { stroke-width: 2; stroke-linejoin: round }
  path.low, path.middle, path.high { fill: none }
  .open { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .title, .name { fill: #f0f6fc }
    .text { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .axis { stroke: #656c76 }
    .low { stroke: #3fb950; fill: #3fb950 }
    .middle { stroke: #4493f8; fill: #4493f8 }
    .high { stroke: #f0883e; fill: #f0883e }
    path.low, path.middle, path.high, .open { fill: none }
  }
"""

# Name, title, figure, factor, least and most of the axis, and whether overloaded sizes are drawn.
PLOTS = [
    ("claims", "Claims for each task", "claims_a_task", 1, 0.1, 1_000, True),
    ("utilization", "Time of one Redis server, %", "utilization", 100, 0.1, 100, True),
    ("lateness", "Lateness, 99th percentile, ms", "lateness_p99_ms", 1, 0.1, 100, False),
]


def draw_all(rows):
    """The name and the text of each plot."""
    for name, title, figure, factor, least, most, draws_overload in PLOTS:
        drawn = [row for row in rows if draws_overload or not row["is_overloaded"]]
        points = [(row, row[figure] * factor) for row in drawn]
        yield name, _plot(title, points, least, most)


def _plot(title, points, least, most):
    lanes = sorted({row["lanes"] for row, _ in points})
    instances = sorted({row["instances"] for row, _ in points})
    width, height = WIDTH * len(lanes), TOP + HEIGHT - 14
    size = f'viewBox="0 0 {width} {height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">']
    parts.append(f"<style>{STYLE}</style>")
    parts.append(f'<text class="title" x="8" y="22">{title}</text>')
    for i, (_, label, style) in enumerate(RATES):
        x = width - 500 + 125 * i
        parts.append(f'<circle class="{style}" cx="{x}" cy="18" r="3.5"/>')
        parts.append(_text(x + 8, 22, label, "start"))
    x = width - 115
    parts.append(f'<circle class="axis open" cx="{x}" cy="18" r="3.5"/>')
    parts.append(_text(x + 8, 22, "overloaded", "start"))
    for i, count in enumerate(lanes):
        of_panel = [(row, value) for row, value in points if row["lanes"] == count]
        parts.append(_panel(i * WIDTH, f"{count:,} lanes", instances, of_panel, least, most))
    parts.append("</svg>\n")
    return "\n".join(parts)


def _panel(offset, label, instances, points, least, most):
    left, right = offset + LEFT, offset + WIDTH - RIGHT
    top, bottom = TOP, TOP + HEIGHT - BOTTOM - 20

    def x(count):
        return left + 8 + (right - left - 16) * log10(count) / log10(instances[-1])

    def y(value):
        return bottom - (bottom - top) * (log10(max(value, least)) - log10(least)) / (
            log10(most) - log10(least))

    parts = [f'<text class="name" x="{left - 40}" y="{top - 20}">{label}</text>']
    tick = least
    while tick <= most * 1.001:
        kind = "axis" if tick == least else "grid"
        at = f"{y(tick):.1f}"
        parts.append(f'<line class="{kind}" x1="{left}" x2="{right}" y1="{at}" y2="{at}"/>')
        parts.append(_text(left - 6, f"{y(tick) + 4:.1f}", f"{tick:g}", "end"))
        tick *= 10
    for count in instances:
        at = f"{x(count):.1f}"
        parts.append(f'<line class="axis" x1="{at}" x2="{at}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(_text(at, bottom + 17, count, "middle"))
    parts.append(_text((left + right) / 2, bottom + 34, "instances", "middle"))
    for rate, _, style in RATES:
        line = sorted((row["instances"], value, row["is_overloaded"]) for row, value in points
                      if row["rate"] == rate)
        if line:
            path = " L".join(f"{x(count):.1f} {y(value):.1f}" for count, value, _ in line)
            parts.append(f'<path class="{style}" d="M{path}"/>')
        for count, value, is_overloaded in line:
            kind = f"{style} open" if is_overloaded else style
            at = f'cx="{x(count):.1f}" cy="{y(value):.1f}"'
            parts.append(f'<circle class="{kind}" {at} r="3.5"/>')
    return "\n".join(parts)


def _text(x, y, text, anchor):
    return f'<text class="text" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'
