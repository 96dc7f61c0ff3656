"""Draws plots as SVG: small panels side by side, one line per store, for light and dark pages."""

from math import ceil, floor, log10

STORES = [("embedded", "Embedded", "circle"), ("redis", "Redis", "square")]
WIDTH, HEIGHT = 300, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 84, 46

STYLE = """
  .title { font: 600 15px system-ui, sans-serif; fill: #1f2328 }
  .name { font: 600 12px system-ui, sans-serif; fill: #1f2328 }
  .text { font: 11px system-ui, sans-serif; fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .axis { stroke: #818b98; stroke-width: 1 }
  .embedded { stroke: #0969da; fill: #0969da }
  .redis { stroke: #bc4c00; fill: #bc4c00 }
  path { stroke-width: 2; stroke-linejoin: round }
  path.embedded, path.redis { fill: none }
  @media (prefers-color-scheme: dark) {
    .title, .name { fill: #f0f6fc }
    .text { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .axis { stroke: #656c76 }
    .embedded { stroke: #4493f8; fill: #4493f8 }
    .redis { stroke: #f0883e; fill: #f0883e }
    path.embedded, path.redis { fill: none }
  }
"""

PLOTS = {
    "pending": ("Cost against tasks pending in one topic", "tasks pending", [
        ("adds_per_s", "Adds, 64 connections", "adds/s"),
        ("lateness_p99_ms", "Lateness, 99th percentile", "ms"),
        ("bytes_per_task", "Memory (Redis) or disk (embedded)", "bytes per pending task"),
    ]),
    "topics": ("Cost against topics", "topics", [
        ("adds_per_s", "Adds, 64 connections", "adds/s"),
        ("arrived_per_s", "Burst of tasks over all topics", "callbacks/s"),
        ("lateness_p99_ms", "Lateness in the burst, 99th percentile", "ms"),
    ]),
}


def draw(told, name):
    """The plot of a group; None if it was measured at one size only."""
    title, across, panels = PLOTS[name]
    sizes = told.sizes(name)
    if len(sizes) < 2:
        return None
    width, height = WIDTH * len(panels), HEIGHT + TOP - 14
    size = f'viewBox="0 0 {width} {height}"'
    name_ = f'role="img" aria-label="{title}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {name_}>']
    parts.append(f"<style>{STYLE}</style>")
    parts.append(f'<text class="title" x="{LEFT - 40}" y="22">{title}</text>')
    parts.append(_legend(width))
    for i, (figure, label, unit) in enumerate(panels):
        series = {}
        for store, _, _ in STORES:
            points = [(size, _figure(told, name, f"{size} {store}", figure)) for size in sizes]
            series[store] = [(size, value) for size, value in points if value is not None]
        parts.append(_panel(i * WIDTH, sizes, series, label, unit, across))
    parts.append("</svg>\n")
    return "\n".join(parts)


def _figure(told, name, key, figure):
    """A figure of a group, or of the burst beside it."""
    value = told.figure(f"{name} {key}", figure)
    return told.figure(f"{name}-burst {key}", figure) if value is None else value


def _legend(width):
    parts, x = [], width - 180
    for store, label, mark in STORES:
        parts.append(_mark(x, 18, store, mark))
        parts.append(f'<text class="text" x="{x + 10}" y="22">{label}</text>')
        x += 90
    return "".join(parts)


def _mark(x, y, store, mark):
    if mark == "circle":
        return f'<circle class="{store}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
    return f'<rect class="{store}" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'


def _panel(offset, sizes, series, label, unit, across):
    left, right = offset + LEFT, offset + WIDTH - RIGHT
    top, bottom = TOP, TOP + HEIGHT - BOTTOM - 20
    ticks = _ticks(max((value for points in series.values() for _, value in points), default=1))

    low, high = log10(sizes[0]), log10(sizes[-1])

    def x(size):
        return left + 8 + (right - left - 16) * (log10(size) - low) / (high - low)

    def y(value):
        return bottom - (bottom - top) * value / ticks[-1]

    parts = [f'<text class="name" x="{left - 40}" y="{top - 31}">{label}</text>']
    for tick in ticks:
        kind = "axis" if tick == 0 else "grid"
        at = f"{y(tick):.1f}"
        parts.append(f'<line class="{kind}" x1="{left}" x2="{right}" y1="{at}" y2="{at}"/>')
        parts.append(_text(left - 6, f"{y(tick) + 4:.1f}", _short(tick), "end"))
    for size in sizes:
        at = f"{x(size):.1f}"
        parts.append(f'<line class="axis" x1="{at}" x2="{at}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(_text(at, bottom + 17, _short(size), "middle"))
    parts.append(_text((left + right) / 2, bottom + 34, across, "middle"))
    parts.append(f'<text class="text" x="{left - 40}" y="{top - 16}">{unit}</text>')
    for store, _, mark in STORES:
        points = [(x(size), y(value)) for size, value in series[store]]
        if points:
            line = " L".join(f"{px:.1f} {py:.1f}" for px, py in points)
            parts.append(f'<path class="{store}" d="M{line}"/>')
            parts.extend(_mark(px, py, store, mark) for px, py in points)
    return "\n".join(parts)


def _text(x, y, text, anchor):
    return f'<text class="text" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _ticks(most):
    """Four or five ticks from 0 to at least the largest value, in steps of 1, 2 or 5 times a power
    of ten."""
    rough = max(most, 1e-9) / 4
    power = 10 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [step * i for i in range(ceil(most / step - 1e-9) + 1)]


def _short(value):
    for size, letter in [(1e6, "M"), (1e3, "k")]:
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
