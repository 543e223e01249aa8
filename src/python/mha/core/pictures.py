"""Pictures of attention weights for notebooks: a small SVG for each head, and the frame that keeps a page apart."""
from __future__ import annotations

import html
import numpy as np

from .kinds import Floats

MOST_CELLS = 64  # of one axis; more are pooled, each cell the largest of its weights
_LEVELS = 16  # of darkness

_STYLE = ("<style>body{margin:8px;font:13px sans-serif;color:#111;background:#fff}table{border-collapse:collapse}"
          "td,th{padding:2px 8px;text-align:left}tbody tr:nth-child(odd){background:#f3f3f3}"
          "figure{display:inline-block;margin:8px 12px 0 0}figcaption{max-width:200px}svg{border:1px solid #999}"
          "</style>")


def pooled(weights: Floats) -> Floats:
    """At most MOST_CELLS rows and columns of a matrix, each the maximum of the cells that it replaces."""
    for axis, n in enumerate(weights.shape):
        starts = np.arange(min(n, MOST_CELLS)) * n // min(n, MOST_CELLS)
        weights = np.maximum.reduceat(weights, starts, axis=axis)
    return weights


def heat_map(weights: Floats, caption: str, down: str = "query", across: str = "key") -> str:
    """A matrix of weights, not empty, with its axes named below; numbers that are not finite are left white."""
    cells = pooled(np.where(np.isfinite(weights), weights, 0.0))
    rows, columns = cells.shape
    most = float(cells.max())
    level = np.rint(cells / most * _LEVELS).astype(int) if most > 0 else np.zeros(cells.shape, int)
    paths: dict[int, list[str]] = {}
    for i, row in enumerate(level):
        edges = np.flatnonzero(np.diff(row)) + 1  # equal neighbours are one rectangle
        for begin, end in zip([0, *edges], [*edges, columns]):
            if row[begin] > 0:
                paths.setdefault(int(row[begin]), []).append(f"M{begin} {i}h{end - begin}v1h{begin - end}z")
    drawn = "".join(f'<path fill-opacity="{n / _LEVELS:g}" d="{"".join(d)}"/>' for n, d in sorted(paths.items()))
    size = max(rows, columns)
    text = html.escape(caption)
    return (f'<figure><svg role="img" aria-label="{text}" viewBox="0 0 {columns} {rows}" fill="#08306b" '
            f'width="{max(1, 200 * columns // size)}" height="{max(1, 200 * rows // size)}" '
            f'shape-rendering="crispEdges" preserveAspectRatio="none">{drawn}</svg>'
            f"<figcaption>{text}; {down} 0 to {len(weights) - 1} ↓, {across} 0 to {weights.shape[1] - 1} →; "
            f"darkest {most:.3g}</figcaption></figure>")


def framed(body: str, height: int) -> str:
    """A page of its own within a notebook: no script runs in it, and its styles stay in it."""
    page = html.escape(f"<!doctype html><meta charset=utf-8>{_STYLE}{body}")
    return (f'<iframe sandbox srcdoc="{page}" width="100%" height="{height}" style="border:0" '
            'title="stages of attention"></iframe>')
