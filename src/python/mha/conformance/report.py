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
    """The result of a kernel in one test case.

    Attributes
    ----------
    case, family, regime : str
        Name of the test case, its settings, and its hard inputs.
    needs : tuple of str
        Features that a kernel needs for it, words of mha.NEEDS.
    outcome : str
        "passed", "failed", or "refused": the kernel raised an exception, and may lack a feature.
    reason : str
        Reason for an outcome other than "passed".
    max_abs, atol, rtol : float
        Largest |exact - yours|, and its tolerance, |exact - yours| <= atol + rtol |exact|.
    mismatches, elements : int
        Elements that differ, and all.
    diagnosis : mha.Diagnosis or None
        Of the first failures only.
    rows : ndarray of float64, shape (B, h, T_q), or None
        The largest error of each row over the allowed error, of a wrong output with a diagnosis.
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
    """The results of mha.conform. True if `passed`; print(report) shows failures, conventions and refusals.

    Attributes
    ----------
    dtype, level, suite : str
        Type and level of the test cases; version of the suite.
    results : list of mha.Result
        One for each test case.
    conventions : dict from str to str
        The kernel's choices, found or declared.
    declared : tuple of str
        Conventions that the caller gave.
    kernel : str
        Name of the function.
    """

    _RENAMED: ClassVar[Mapping[str, str]] = {"answers": "results", "dialects": "conventions"}

    dtype: str
    level: str
    results: list[Result]
    conventions: dict[str, str]
    declared: tuple[str, ...] = ()
    suite: str = VERSION
    kernel: str = ""
    _save: Callable[[str, str], None] = field(default=lambda name, path: None, repr=False)
    _reduce: Callable[[str], Optional[Reduced]] = field(default=lambda name: None, repr=False)

    def _of(self, outcome: str) -> list[Result]:
        return [result for result in self.results if result.outcome == outcome]

    @property
    def failed(self) -> list[Result]:
        """The wrong results."""
        return self._of("failed")

    @property
    def refused(self) -> list[Result]:
        """The results of test cases in which the kernel raised an exception."""
        return self._of("refused")

    @property
    def passed(self) -> bool:
        """Whether some result is right, and none is wrong."""
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

        Examples
        --------
        >>> def kernel(q, k, v):
        ...     return mha.scaled_dot_product_attention(q, k, v, scale=1.0)
        >>> report = mha.conform(kernel, has=(), level="smoke", only="plain.q17-s17")
        >>> report.save("plain.q17-s17", "failed.safetensors")
        >>> mha.diagnose("failed.safetensors").names
        ['scale-missing']
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
        mha.Reduced or None
            A call, with .save(path) for a case file and .script for ten lines of Python. None: a norm or an extra row
            has weights of all heads, or the kernel is right.

        Raises
        ------
        ValueError
            No test case has this name.

        Examples
        --------
        >>> def kernel(q, k, v):
        ...     return mha.scaled_dot_product_attention(q, k, v, scale=1.0)
        >>> report = mha.conform(kernel, has=(), level="smoke", only="plain.q17-s17")
        >>> report.reduce("plain.q17-s17").k.shape
        (1, 1, 2, 2)
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
                 heat_map(np.where(rows > 1, np.minimum(rows, _DARKEST), 0.0), f"batch row {b}", "head", "query")
                 for b, rows in enumerate(maps))
             for result, maps in [(x, x.rows) for x in report.failed if x.rows is not None][:_MAPPED]]
    return ("<h2>Which rows differ</h2><p>White: the largest error of the row is allowed. The darker, the more times "
            f"the allowed error; {_DARKEST:g} times and more are darkest.</p>" + "".join(parts)) if parts else ""


def _bug(result: Result) -> str:
    """The first bug with its meaning; without a bug the first clue, or the reason."""
    matches = () if result.diagnosis is None else result.diagnosis.matches
    named = [match for match in matches if match.exact and (match.bugs or match.heads)]
    return f"{named[0]}{result.because[len(result.names[0]):]}" if named else result.because


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
    failed = Table(("case", "bug", "max |error|", "allowed", "differ", "of"),
                   [(x.case, _bug(x), x.max_abs, x.atol, x.mismatches, x.elements) for x in report.failed])
    every = Table(("case", "family", "regime", "outcome", "max |error|", "atol", "rtol"),
                  [(x.case, x.family, x.regime, x.outcome,
                    *((None,) * 3 if x.outcome == "refused" else (x.max_abs, x.atol, x.rtol))) for x in report.results])
    return document(summary, "".join((
        f"<h1 class={verdict}>{text(report.kernel)} <span>{verdict}</span></h1><p>{text(summary)}</p>",
        _section("Failed", failed), _section("What else is known of them", clues), _maps(report),
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
