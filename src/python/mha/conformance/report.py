"""The report of a conformance suite: results, tables, one HTML page that needs no network, and a badge."""
from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Callable, ClassVar, Mapping, Optional

import numpy as np

from .._renamed import Renamed, keywords
from ..core import arrays as a
from ..core.files import path_of
from ..core.html import document, text
from ..core.pictures import heat_map
from ..core.tables import Table
from ..judge.check import Diagnosis
from . import schema
from .reduce import Reduced
from .suite import CONVENTIONS, VERSION

_REDUCED = 3  # failures that are made small; one takes some dozen calls of the kernel
_MAPPED = 12  # failures whose rows are drawn
_DARKEST = 16.0  # times what is allowed


@dataclass(frozen=True)
class Result(Renamed):
    """What a kernel answered to one test case.

    outcome: "passed", "failed", or "refused": the kernel raised an exception, and may lack a feature of the test case.
    reason: of what did not pass. max_abs, atol, rtol: |exact - yours| <= atol + rtol |exact| was allowed.
    diagnosis: of the first failures; None of the others.
    rows: (B, h, T_q), of failures of an output with a diagnosis: the largest error of each row over what is allowed.
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"question": "case"}

    case: str
    family: str
    regime: str
    needs: tuple[str, ...]
    outcome: str
    reason: str = ""
    max_abs: float = 0.0
    atol: float = 0.0
    rtol: float = 0.0
    mismatches: int = 0
    elements: int = 0
    diagnosis: Optional[Diagnosis] = None
    rows: Optional[a.Doubles] = field(default=None, compare=False, repr=False)

    @property
    def names(self) -> list[str]:
        """Names of the known bugs that give the result."""
        return [] if self.diagnosis is None else self.diagnosis.names

    @property
    def because(self) -> str:
        """The first name, else the first clue, else the reason."""
        if self.names:
            return self.names[0] + (f", or {len(self.names) - 1} more" if len(self.names) > 1 else "")
        return self.reason if self.diagnosis is None else (*self.diagnosis.clues, self.reason)[0]

    def to_dict(self) -> dict[str, object]:
        """Convert the result to types of JSON, without `rows`; None for a number that is NaN or infinite.

        Returns
        -------
        dict
            The fields, the diagnosis as its names and clues.
        """
        found = {name: getattr(self, name) for name in ("case", "family", "regime", "outcome", "reason",
                                                        "mismatches", "elements")}
        numbers = {name: getattr(self, name) for name in ("max_abs", "atol", "rtol")}
        return {**found, **{name: x if math.isfinite(x) else None for name, x in numbers.items()},
                "needs": list(self.needs), "bugs": self.names,
                "clues": [] if self.diagnosis is None else list(self.diagnosis.clues)}


@dataclass
class Report(Renamed):
    """What a kernel answered to the suite. print(report) says what failed and why, conventions, and what was refused.

    results: one for each test case that was asked. conventions: the choice of each convention that was asked about;
    `declared`: those that were not looked for.
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"answers": "results", "dialects": "conventions"}

    dtype: str
    level: str
    results: list[Result]
    conventions: dict[str, str]
    declared: tuple[str, ...] = ()
    suite: str = VERSION
    _save: Callable[[str, str], None] = field(default=lambda name, path: None, repr=False)
    _reduce: Callable[[str], Optional[Reduced]] = field(default=lambda name: None, repr=False)

    def _of(self, outcome: str) -> list[Result]:
        return [result for result in self.results if result.outcome == outcome]

    @property
    def failed(self) -> list[Result]:
        """What was wrong."""
        return self._of("failed")

    @property
    def refused(self) -> list[Result]:
        """What raised an exception."""
        return self._of("refused")

    @property
    def passed(self) -> bool:
        """Whether something was answered, and nothing wrongly."""
        return not self.failed and bool(self._of("passed"))

    def __bool__(self) -> bool:
        return self.passed

    def table(self) -> Table:
        """Tabulate the failures.

        Returns
        -------
        mha.Table
            One row for each wrong result.
        """
        return Table(("case", "max abs", "allowed", "differ", "of", "because"),
                     [(x.case, x.max_abs, x.atol, x.mismatches, x.elements, x.because) for x in self.failed])

    def refusals(self) -> Table:
        """Tabulate the refusals: the kernel's first words, the number of test cases, and the features that these need.

        Returns
        -------
        mha.Table
            One row for each reason.
        """
        found: dict[str, list[Result]] = {}
        for x in self.refused:
            found.setdefault(x.reason.partition("\n")[0], []).append(x)
        return Table(("refused", "cases", "of those that need"),
                     [(reason, len(those), " ".join(sorted({need for x in those for need in x.needs}))[:60])
                      for reason, those in found.items()])

    @staticmethod
    def schema() -> dict[str, object]:
        """Get the JSON Schema (draft 2020-12) of to_dict().

        Returns
        -------
        dict
            The schema.
        """
        return schema.schema()

    def to_dict(self) -> dict[str, object]:
        """Convert the report to types of JSON, as schema() describes them.

        Returns
        -------
        dict
            Everything in the report.
        """
        return {"suite": self.suite, "dtype": self.dtype, "level": self.level, "passed": len(self._of("passed")),
                "failed": len(self.failed), "refused": len(self.refused),
                "conventions": [{"convention": name, "choice": choice, "meaning": CONVENTIONS[name].choices[choice],
                              "how": "declared" if name in self.declared else "found"}
                             for name, choice in self.conventions.items()],
                "results": [result.to_dict() for result in self.results]}

    def to_html(self) -> str:
        """Make one HTML page that needs no network. The kernel runs again for the smallest calls that still fail.

        Returns
        -------
        str
            The page: verdicts, clues, conventions, refusals.
        """
        return _page(self)

    def badge(self) -> str:
        """Make a small picture (SVG) with the share of right results.

        Returns
        -------
        str
            The SVG.
        """
        return _badge(self)

    @keywords(question="case")
    def save(self, case: str, path: a.Path) -> None:
        """Ask a test case once more, and write it with the result as a case file for mha check and mha diagnose.

        Parameters
        ----------
        case : str
            Name of the test case.
        path : path_like
            File to write.

        Raises
        ------
        ValueError
            No test case has this name.
        mha.MachineError
            mha cannot write the file; also an OSError.
        """
        self._save(case, os.fsdecode(path_of("path", path)))

    @keywords(question="case")
    def reduce(self, case: str) -> Optional[Reduced]:
        """Reduce a failure to the smallest call with which the kernel still fails.

        mha leaves out batch rows, heads, tokens, features, sequences of a ragged batch and entries of lists, and rounds
        numbers.

        Parameters
        ----------
        case : str
            Name of the test case.

        Returns
        -------
        Reduced or None
            A call, with .save(path) for a case file and .script for ten lines of Python. None: a norm or an extra row
            has weights of all heads, or the kernel is right.

        Raises
        ------
        ValueError
            No test case has this name.
        """
        return self._reduce(case)

    def __str__(self) -> str:
        parts = []
        if self.failed:
            parts.append(f"failed\n{self.table()}")
        if self.conventions:
            parts.append(str(Table(("convention", "choice", "meaning"),
                                   [(name, choice, CONVENTIONS[name].choices[choice])
                                    for name, choice in self.conventions.items()])))
        if self.refused:
            parts.append(str(self.refusals()))
        parts.append(f"{self.suite}, {self.dtype}, level {self.level}: {len(self._of('passed'))} passed, "
                     f"{len(self.failed)} failed" + (f", {len(self.refused)} refused" if self.refused else ""))
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = self.table()
        table.note = str(self).splitlines()[-1]
        return table._repr_html_()


# ---------------------------------------------------------------- pages


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
                 for b, rows in enumerate(maps))
             for result, maps in [(x, x.rows) for x in report.failed if x.rows is not None][:_MAPPED]]
    return ("<h2>Which rows differ</h2><p>Heads down, queries across. White: within what is allowed; dark: times what "
            f"is allowed, {_DARKEST:g} and more the darkest.</p>" + "".join(parts)) if parts else ""


def _section(title: str, table: Table) -> str:
    return f"<h2>{title}</h2>{table._repr_html_()}" if len(table) else ""


def _page(report: Report) -> str:
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


def _badge(report: Report) -> str:
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
