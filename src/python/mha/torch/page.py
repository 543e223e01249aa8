"""A watched model as one HTML page that needs no network: layers down, heads across."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Optional

from ..core.html import STYLE, document, text
from ..core.pictures import framed, heat_map
from ..core.tables import Table

if TYPE_CHECKING:
    from .watch import Watch, Watched

_FAINTEST = 1e-4  # of what is allowed: from here on a cell is coloured


def _cell(ratio: Optional[float]) -> str:
    """A head of a layer: the error over what is allowed, the darker the nearer to it; red beyond it."""
    if ratio is None:
        return "<td></td>"
    if not ratio <= 1:
        return f"<td class=wrong>{ratio:.2g}</td>"
    depth = max(0.0, 1 - math.log10(max(ratio, _FAINTEST)) / math.log10(_FAINTEST))
    return f'<td style="background:rgba(24,106,59,{0.75 * depth:.2f})">{ratio:.2g}</td>'


def _row(w: Watch, row: Watched, most: int) -> str:
    """A layer: what it was asked for, its heads, and whether it is the first that is wrong."""
    wrong = [found for found in w.findings if found.layer == row.layer]
    said = ("FIRST" if wrong and wrong[0] is w.first else "wrong" if wrong else "not compared" if row.ratio is None else
            "ok")
    cells = "".join(map(_cell, [*row.heads, *[None] * (most - len(row.heads))]))
    asked = text("; ".join(row.asked) or "; ".join(row.uncompared))
    return f"<tr><th>{text(row.layer)}</th><td>{said}</td>{cells}<td>{asked}</td></tr>"


def _map(w: Watch) -> str:
    """Layers down, heads across."""
    most = max((len(row.heads) for row in w.layers.values()), default=0)
    heads = "".join(f"<th>{i}</th>" for i in range(most))
    rows = "".join(_row(w, row, most) for row in w.layers.values())
    return ("<h2>Layers and heads</h2><p>The largest error of each head, divided by what rounding may cost there. At "
            "most 1 is right; what is beyond it is red. A layer that is checked as a whole has one number.</p><table "
            f"class=map><tr><th>layer</th><th></th>{heads}<th>asked for</th></tr>{rows}</table>") if rows else ""


def _looks(w: Watch) -> str:
    """What the heads look at, layer by layer, folded away."""
    parts = [f"<details><summary>{text(row.layer)}</summary>{''.join(drawn)}</details>" for row, drawn in (
        (row, [heat_map(head, f"head {i}") for i, head in enumerate(row.maps)]) for row in w.layers.values()) if drawn]
    return ("<h2>What heads look at</h2><p>The right weights of the first call's first batch row: queries that were "
            f"checked down, keys across.</p>{''.join(parts)}") if parts else ""


def _findings(w: Watch) -> str:
    """What is wrong, in the order in which it came."""
    parts = [f"<h3>{text(found.layer)}, call {found.call}</h3><p>{text(found.sentence)}</p>" + "".join(
        f"<p>{text(clue)}</p>" for clue in found.clues) for found in w.findings]
    return "<h2>What is wrong, the first thing first</h2>" + "".join(parts) if parts else ""


def body(w: Watch) -> str:
    """What the page shows, without its frame."""
    verdict = w.status
    left = Table(("layer", "why"), [(name, why) for name, reasons in w.unchecked.items() for why in reasons])
    more = f"<h2>Not checked</h2>{left._repr_html_()}" if len(left) else ""
    return (f"<h1 class={verdict.replace(' ', '-')}>{verdict}</h1><p>{text(w.summary)}</p>{_findings(w)}{_map(w)}"
            f"{_looks(w)}{more}" + (f"<h2>All layers</h2>{w.table()._repr_html_()}" if w.layers else ""))


def page(w: Watch) -> str:
    """A watched model as one page. It loads nothing, runs nothing, and shows names of modules as text."""
    return document(w.summary, body(w))


def notebook(w: Watch) -> str:
    """The same within a notebook."""
    return framed(f"<style>{STYLE}</style>{body(w)}", min(900, 260 + 60 * len(w.layers) + 120 * len(w.findings)))
