"""Plots as SVG, by hand: bars side by side, and lines on logarithmic axes. The same numbers give the same bytes."""
import html
import math

# Colours that people who confuse colours tell apart (Okabe and Ito, 2008); further series repeat them, lines dashed.
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999999", "#000000"]
KEY = 150  # width beside a panel in which the series are named


class Panel:
    """A part of a drawing with axes: `left`, `top`, `width` and `height` are those of the area with the data."""

    def __init__(self, left, top, width, height, title):
        self.left, self.top, self.width, self.height = left, top, width, height
        self.out = [text(left + width / 2, top - 10, title, 'text-anchor="middle" font-weight="bold"')]

    def y_tick(self, share, label):
        y = self.top + self.height * (1 - share)
        self.out += [f'<path d="M{self.left} {y:.1f}h{self.width}" stroke="#ddd"/>',
                     text(self.left - 6, y + 4, label, 'text-anchor="end"')]

    def names(self, series):
        for i, name in enumerate(series):
            y = self.top + 6 + 18 * i
            self.out += [f'<rect x="{self.left + self.width + 14}" y="{y - 5}" width="12" height="10" '
                         f'fill="{colour(i)}"/>',
                         text(self.left + self.width + 32, y + 4, name)]


def colour(i):
    return COLOURS[i % len(COLOURS)]


def text(x, y, words, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{" " + more if more else ""}>{html.escape(str(words))}</text>'


def step_for(largest):
    """The distance of ticks: 1, 2 or 5 times a power of ten, four to ten of them."""
    power = 10.0 ** math.floor(math.log10(largest / 4))
    return next(power * factor for factor in (1, 2, 5, 10) if largest / (power * factor) <= 10)


def bars(panels, unit):
    """An SVG of bars. panels: (title, categories, series), series: name -> {category: value}; what is missing has no
    bar."""
    width, height, out = 1200, 400 * len(panels), []
    for p, (title, categories, series) in enumerate(panels):
        panel = Panel(70, 400 * p + 40, width - 70 - KEY, 250, f"{title}, {unit}")
        largest = max((v for values in series.values() for v in values.values()), default=1)
        step = step_for(largest)
        for i in range(int(largest / step) + 1):
            panel.y_tick(i * step / largest, f"{i * step:g}")
        slot = panel.width / max(len(categories), 1)
        bar = 0.85 * slot / max(len(series), 1)
        for c, category in enumerate(categories):
            left = panel.left + c * slot
            for s, (name, values) in enumerate(series.items()):
                if category in values:
                    high = panel.height * values[category] / largest
                    panel.out.append(
                        f'<rect class="bar" x="{left + s * bar:.1f}" y="{panel.top + panel.height - high:.2f}" '
                        f'width="{bar:.1f}" height="{high:.2f}" fill="{colour(s)}"><title>'
                        f"{html.escape(f'{name}, {category}: {values[category]:.4g} {unit}')}</title></rect>")
            x, y = left + 0.42 * slot, panel.top + panel.height + 14
            panel.out.append(text(x, y, category, f'text-anchor="end" transform="rotate(-35 {x:.1f} {y:.1f})"'))
        panel.names(series)
        out += panel.out
    return drawing(width, height, out)


def powers(values, upwards):
    """An axis of powers of 2: where a number lies on it, as a share, its ticks, and what these are called."""
    low = math.floor(math.log2(min(values)))
    high = max(math.ceil(math.log2(max(values))), low + 1)
    ticks = [2.0 ** k for k in range(low, high + 1, 1 + (high - low) // 10)]
    return ((lambda v: (math.log2(v) - low) / (high - low)), ticks,
            lambda v: f"{v:.0f}" if v >= 1 and not upwards else f"2^{math.log2(v):.0f}")


def even(values, upwards):
    """An axis from 0 on, its ticks as far from each other."""
    step = step_for(max(values))
    ticks = [i * step for i in range(int(max(values) / step) + 2)]
    return (lambda v: v / ticks[-1]), ticks, "{:g}".format


def lines(panels, y_name, axis=powers):
    """An SVG of lines, two panels in a row, on axes of powers of 2 or even ones. panels: (title, name of x, series),
    series: name -> [(x, y), ...]; numbers that are not above 0 are left out."""
    width, height, out = 1200, 380 * ((len(panels) + 1) // 2), []
    for p, (title, x_name, series) in enumerate(panels):
        panel = Panel(600 * (p % 2) + 70, 380 * (p // 2) + 40, 600 - 70 - KEY, 260, title)
        series = {name: [(x, y) for x, y in points if y > 0] for name, points in series.items()}
        points = [point for some in series.values() for point in some] or [(1, 1)]
        (x_share, x_ticks, x_called), (y_share, y_ticks, y_called) = (axis([point[k] for point in points], k == 1)
                                                                      for k in (0, 1))
        for tick in y_ticks:
            panel.y_tick(y_share(tick), y_called(tick))
        for tick in x_ticks:
            panel.out.append(text(panel.left + panel.width * x_share(tick), panel.top + panel.height + 16,
                                  x_called(tick), 'text-anchor="middle"'))
        panel.out += [text(panel.left + panel.width / 2, panel.top + panel.height + 34, x_name, 'text-anchor="middle"'),
                      text(panel.left - 50, panel.top - 10, y_name)]
        for s, (name, some) in enumerate(series.items()):
            at = [(panel.left + panel.width * x_share(x), panel.top + panel.height * (1 - y_share(y))) for x, y in some]
            dashed = ' stroke-dasharray="5 3"' if s >= len(COLOURS) else ""
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
            if at:
                panel.out.append(f'<path class="line" d="M{path}" fill="none" stroke="{colour(s)}" '
                                 f'stroke-width="1.6"{dashed}><title>{html.escape(name)}</title></path>')
            panel.out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour(s)}"/>' for x, y in at]
        panel.names(series)
        out += panel.out
    return drawing(width, height, out)


def drawing(width, height, elements):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n' + "\n".join(elements) + "\n</svg>\n")
