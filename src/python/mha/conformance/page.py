"""A conformance report as files to hand on: one HTML page that needs no network, and a badge."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.html import document, text
from ..core.pictures import heat_map
from ..core.tables import Table
from .suite import CONVENTIONS

if TYPE_CHECKING:
    from .conform import Report

_REDUCED = 3  # failures that are made small; one takes some dozen calls of the kernel
_MAPPED = 12  # failures whose rows are drawn
_DARKEST = 16.0  # times what is allowed


def _smallest(report: Report) -> str:
    """The first failures made small, as Python."""
    parts = []
    for result in report.failed[:_REDUCED]:
        small = report.reduce(result.case)
        if small is not None:
            lines = "\n".join(map(text, small.script.splitlines()))
            parts.append(f"<h3>{text(result.case)}</h3><pre>{lines}</pre>")
    return "<h2>The smallest calls that still fail</h2>" + "".join(parts) if parts else ""


def _maps(report: Report) -> str:
    """Where the first failures differ: for each batch row its heads down, its queries across."""
    parts = [f"<h3>{text(result.case)}</h3>" + "".join(
                 heat_map(np.where(rows > 1, np.minimum(rows, _DARKEST), 0.0), f"batch row {b}")
                 for b, rows in enumerate(result.rows))
             for result in [result for result in report.failed if result.rows is not None][:_MAPPED]]
    return ("<h2>Which rows differ</h2><p>Heads down, queries across. White: within what is allowed; dark: times what "
            f"is allowed, {_DARKEST:g} and more the darkest.</p>" + "".join(parts)) if parts else ""


def _section(title: str, table: Table) -> str:
    return f"<h2>{title}</h2>{table._repr_html_()}" if len(table) else ""


def page(report: Report) -> str:
    """A report as one HTML page. It loads nothing, runs nothing, and shows what a kernel said as text.

    Asks the kernel again for the smallest calls of the first failures.
    """
    summary = str(report).splitlines()[-1]
    verdict = "passed" if report.passed else "failed"
    conventions = Table(("convention", "choice", "meaning", "how"),
                     [(name, choice, CONVENTIONS[name].choices[choice],
                       "declared" if name in report.declared else "found")
                      for name, choice in report.conventions.items()])
    clues = Table(("case", "clue"), [(result.case, clue) for result in report.failed
                                         if result.diagnosis is not None for clue in result.diagnosis.clues])
    every = Table(("case", "family", "regime", "outcome", "max abs", "atol", "rtol"),
                  [(x.case, x.family, x.regime, x.outcome,
                    *((None,) * 3 if x.outcome == "refused" else (x.max_abs, x.atol, x.rtol))) for x in report.results])
    return document(summary, "".join((
        f"<h1 class={verdict}>{verdict}</h1><p>{text(summary)}</p>",
        _section("Failed", report.table()), _section("What else is known of them", clues), _maps(report),
        _smallest(report),
        _section("Conventions", conventions), _section("Refused", report.refusals()),
        _section("All test cases", every))))


def badge(report: Report) -> str:
    """A report as a small picture (SVG): the suite, and how many test cases of those with a result were passed."""
    passed = sum(result.outcome == "passed" for result in report.results)
    left, right = report.suite, f"{passed} of {passed + len(report.failed)}, {report.dtype}"
    widths = [7 * len(word) + 12 for word in (left, right)]
    fill = "#186a3b" if report.passed else "#a93226"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" role="img">'
            f"<title>{text(left)}: {text(right)}</title>"
            f'<rect width="{sum(widths)}" height="20" rx="3" fill="#444"/>'
            f'<rect x="{widths[0]}" width="{widths[1]}" height="20" rx="3" fill="{fill}"/>'
            '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">'
            f'<text x="{widths[0] / 2}" y="14">{text(left)}</text>'
            f'<text x="{widths[0] + widths[1] / 2}" y="14">{text(right)}</text></g></svg>\n')
