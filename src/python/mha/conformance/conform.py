"""The conformance suite as a call: runs a kernel on test cases and reports its results."""
from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, ClassVar, Collection, Iterator, Mapping, Optional

from .._renamed import Renamed, keywords
from ..core import arrays as a
from ..core.errors import Error
from ..core.files import path_of
from ..core.library import call, lib
from ..core.shapes import heads_first
from ..core.tables import Table
from ..judge.check import Diagnosis, Verdict
from . import page
from . import schema
from .autodiff import run_pair
from .reduce import Reduced, Reducer
from .suite import CONVENTIONS, LEVELS, TYPES, VERSION, Case, Row, choices_of, rows, wrapper

_About = tuple[str, str, str, tuple[str, ...]]  # of a case: its name, family, regime, and what it needs
_DIAGNOSED = 40  # failures that are diagnosed; one takes about half a second


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
    rows: Any = field(default=None, compare=False, repr=False)

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

    def to_dict(self) -> dict[str, Any]:
        """The fields but rows, the diagnosis as its names and clues; None for a number that is NaN or infinite."""
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
        """One row for each wrong result."""
        return Table(("case", "max abs", "allowed", "differ", "of", "because"),
                     [(x.case, x.max_abs, x.atol, x.mismatches, x.elements, x.because) for x in self.failed])

    def refusals(self) -> Table:
        """What was refused: the first words of the kernel, how many test cases, and what these need."""
        found: dict[str, list[Result]] = {}
        for x in self.refused:
            found.setdefault(x.reason.partition("\n")[0], []).append(x)
        return Table(("refused", "cases", "of those that need"),
                     [(reason, len(those), " ".join(sorted({need for x in those for need in x.needs}))[:60])
                      for reason, those in found.items()])

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON Schema (draft 2020-12) of what to_dict() returns."""
        return schema.schema()

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it: schema() says what."""
        return {"suite": self.suite, "dtype": self.dtype, "level": self.level, "passed": len(self._of("passed")),
                "failed": len(self.failed), "refused": len(self.refused),
                "conventions": [{"convention": name, "choice": choice, "meaning": CONVENTIONS[name].choices[choice],
                              "how": "declared" if name in self.declared else "found"}
                             for name, choice in self.conventions.items()],
                "results": [result.to_dict() for result in self.results]}

    def to_html(self) -> str:
        """One HTML page that needs no network: verdicts, clues, conventions, refusals, and the smallest calls that
        still fail, for which the kernel runs again."""
        return page.page(self)

    def badge(self) -> str:
        """A small picture (SVG) of the suite, and how many of the results are right."""
        return page.badge(self)

    @keywords(question="case")
    def save(self, case: str, path: Any) -> None:
        """Asks a test case once more, and writes it with the result as a case file, for mha check and mha diagnose."""
        self._save(case, os.fsdecode(path_of("path", path)))

    @keywords(question="case")
    def reduce(self, case: str) -> Optional[Reduced]:
        """Makes a failure small: the fewest batch rows, heads, tokens and features, and the plainest numbers, with
        which the kernel still fails, or its gradients if only these are wrong, as a case file (.save) and ten lines
        of Python (.script): with the fewest sequences of a ragged batch, entries of lists and rows of a page as well.
        None where a norm or an extra row has weights of all heads, or where the kernel is right."""
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


class _Asker:
    """A kernel, and how it is called."""

    def __init__(self, kernel: Callable[..., Any], layout: str, dtype: int, arrays: str, sure: bool,
                 backward: Optional[Callable[..., Any]] = None) -> None:
        heads_first(layout)
        self.kernel, self.layout, self.dtype, self.backward = kernel, layout, dtype, backward
        self.arrays, self.wrap, self.sure, self.diagnosed = arrays, wrapper(arrays), sure, 0

    def call(self, row: Row) -> list[a.Tensor]:
        """The kernel's result. The test case is one of its own: a kernel may write to its inputs."""
        case = Case(row, self.dtype)
        asked = case.ask(self.layout, self.wrap)
        return case.seen(self.layout, self.kernel(*asked.inputs, **asked.settings))

    def run(self, row: Row, choices: Any) -> tuple[list[a.Tensor], dict[str, a.Tensor]]:
        """The result, and where the test case asks for them the gradients of q, k and v."""
        if "backward" not in row.needs:
            return self.call(row), {}
        case = Case(row, self.dtype)
        asked = case.ask(self.layout, self.wrap)
        do = Case(row, self.dtype, choices).d_output(self.layout, self.wrap)
        back = None if self.backward is None else partial(self.backward, **asked.settings)
        output, _, found = run_pair(partial(self.kernel, **asked.settings), back, asked.inputs, do, 0)
        return case.seen(self.layout, output), case.gradients(self.layout, found)

    def choice(self, row: Row, name: str, others: Mapping[str, str]) -> Optional[str]:
        """The first choice of a convention, beside the known ones, with which the kernel passes a test case."""
        try:
            result = self.call(row)
        except (Exception, SystemExit):  # told when the test case is asked among the others
            return None
        for choice in CONVENTIONS[name].choices:
            if Case(row, self.dtype, choices_of({**others, name: choice})).check(result).passed:
                return choice
        return None

    def result(self, row: Row, choices: Any) -> Result:
        """The kernel's result of a test case of the suite."""
        about = row.name, row.family, row.regime, row.needs
        try:
            result, gradients = self.run(row, choices)
        except (Exception, SystemExit) as raised:
            can = self.sure or not row.needs
            failed = can and not isinstance(raised, NotImplementedError) or isinstance(raised, SystemExit)
            return Result(*about, "failed" if failed else "refused", f"{type(raised).__name__}: {raised}")
        case = Case(row, self.dtype, choices)
        verdict = case.check(result, gradients)
        found = self._checked(about, verdict, lambda stage: case.diagnose(result, gradients, stage))
        if found.diagnosis is not None and verdict.first == "output":
            found = replace(found, rows=case.rows_off(result, found.atol, found.rtol))
        return found

    def _checked(self, about: _About, verdict: Verdict, diagnose: Callable[[str], Diagnosis]) -> Result:
        """What a verdict says, of the first failures with a diagnosis."""
        stage = next((s for s in verdict.stages if s.name == verdict.first), verdict.stages[0])
        diagnosis = None
        if verdict.failed and self.diagnosed < _DIAGNOSED:
            self.diagnosed += 1
            try:
                diagnosis = diagnose(stage.name)
            except Error:
                pass
        return Result(*about, "passed" if verdict.passed else "failed", verdict.reason, stage.max_abs, stage.atol,
                      stage.rtol, stage.mismatches, stage.elements, diagnosis)


def _chosen(has: Optional[Collection[str]], level: str, only: Optional[str]) -> Iterator[Row]:
    most = a.choice("level", level, LEVELS)
    if only is not None:
        a.text("only", only)
    if has is not None:
        call(lib.mha_conform_has, " ".join(sorted(_words(has))).encode(), most)
    for row in rows():
        if row.level <= most and _has(has, row) and (only is None or only in row.name):
            yield row


class Examination:
    """A kernel, its test cases (`rows`), and the conventions that were found or declared. Parameters as of conform."""

    def __init__(self, kernel: Callable[..., Any], layout: str, dtype: Any, has: Optional[Collection[str]], level: str,
                 arrays: str, conventions: Optional[Mapping[str, str]] = None, only: Optional[str] = None,
                 backward: Optional[Callable[..., Any]] = None) -> None:
        if not callable(kernel):
            raise TypeError(f"kernel: expected a function, found {type(kernel).__name__}")
        if conventions is not None and not isinstance(conventions, Mapping):
            raise TypeError(f"conventions: expected choices by convention, found {type(conventions).__name__}")
        if backward is not None and not callable(backward):
            raise TypeError(f"backward: expected a function, found {type(backward).__name__}")
        differentiable = backward is not None or arrays != "numpy"
        if has is not None and "backward" in _words(has) and not differentiable:
            raise TypeError("backward: needed beside arrays of numpy, which have no autograd: backward(q, k, v, "
                            "output, do) returns dq, dk and dv")
        self.rows = [row for row in _chosen(has, level, only) if differentiable or "backward" not in row.needs]
        if not self.rows:
            raise ValueError("only: no test case of this level, with what the kernel has, has such a name")
        self._words = set() if has is None else _words(has)
        self.level, self.layout, self.declared = level, layout, tuple(conventions or ())
        self._asker = _Asker(kernel, layout, a.float_type("dtype", dtype, TYPES), arrays, has is not None, backward)
        Case(self.rows[0], self._asker.dtype).ask(layout, self._asker.wrap)  # TypeError: no such arrays here
        self.conventions = dict(conventions or {})
        choices_of(self.conventions)
        self._every = {row.name: row for row in rows()}
        for probe in (True, False):  # first the test cases that differ by one convention alone
            for name, d in CONVENTIONS.items():
                for row in [self._every[d.probe]] if probe else (row for row in self.rows if row.level == 0):
                    if name in self.conventions or not (_has(has, row) and Case(row, self._asker.dtype).differs(d)):
                        continue
                    found = self._asker.choice(row, name, {} if probe else self.conventions)
                    if found is not None:
                        self.conventions[name] = found
        self._held = choices_of(self.conventions)

    def result(self, row: Row) -> Result:
        """The kernel's result of a test case."""
        return self._asker.result(row, self._held)

    def report(self) -> Report:
        """All results."""
        return Report(a.NAMES[self._asker.dtype], self.level, [self.result(row) for row in self.rows], self.conventions,
                      self.declared, _save=self.save, _reduce=self.reduce)

    def _named(self, case: str) -> Row:
        if case not in self._every:
            raise ValueError(f"case: expected the name of one, found {case!r}")
        return self._every[case]

    def save(self, case: str, path: str) -> None:
        """See Report.save."""
        row = self._named(case)
        result, gradients = self._asker.run(row, self._held)
        asked = Case(row, self._asker.dtype, self._held)
        right = bool(gradients) and asked.check(result).passed
        asked.save(os.fsencode(path), [] if right else result, gradients if right else {})

    def reduce(self, case: str) -> Optional[Reduced]:
        """See Report.reduce."""
        row, asker = self._named(case), self._asker
        q, k, v, settings = Case(row, asker.dtype).plain(self.layout)
        do = Case(row, asker.dtype, self._held).plain_d_output()
        reducer = Reducer(asker.kernel, self.layout, asker.dtype, asker.arrays, self.conventions, asker.backward,
                          {*row.needs, *self._words})
        found = None if do is None else reducer.reduce(q, k, v, settings, do)
        return found or reducer.reduce(q, k, v, settings)


@keywords(dialect="conventions")
def conform(kernel: Callable[..., Any], *, layout: str = "BHTD", dtype: Any = "float32",
            has: Optional[Collection[str]] = None, level: str = "full", arrays: str = "numpy",
            conventions: Optional[Mapping[str, str]] = None, only: Optional[str] = None,
            backward: Optional[Callable[..., Any]] = None) -> Report:
    """Asks a kernel the test cases of mha-conform 1.2, and checks its results.

        print(mha.conform(my_attention, dtype="bfloat16", arrays="torch", has={"causal", "gqa", "window"}))

    kernel: called as mha.scaled_dot_product_attention (layout "BHTD") or mha.attention ("BTHD", "BTNH"), with only the
        keywords that a test case needs: kernel(q, k, v, is_causal=True, enable_gqa=True). Beside mha.SETTINGS these are
        past_key and past_value, (batch, key/value heads, rows, width) in the axes of key, for a cache; page_table and
        page_lengths, where k and v are pools of pages; q_norm, k_norm and so on, weights of norms; return_lse=True,
        which asks for (output, lse).
    dtype: what the kernel computes in, and the type of its inputs: float32, float16 or bfloat16.
    has: what the kernel has, of the words in mha.NEEDS: only test cases that need no more are asked, and an exception
        is a failure, but for NotImplementedError. None: everything is asked, and an exception is a refusal, but a
        failure where the test case needs none of the words.
    level: "smoke" (seconds), "full" (minutes), or "large", with sequences of 65,537 keys.
    arrays: "numpy", "torch" or "jax": of what kind every array is that the kernel is given, masks, tables and lengths
        as well. Where JAX has no 64 bits, arrays of float64 and int64 are of numpy.
    conventions: choices by convention, {"empty": "nan"}: the kernel is held to them. Others are found by asking.
    only: test cases whose names have this text in them.
    backward: of test cases that need "backward", the gradients of q, k and v from do, the gradient of the output, in
        its axes: backward(q, k, v, output, do, **settings) returns (dq, dk, dv), in the axes of q, k and v. None: of
        torch autograd runs through the kernel, of JAX jax.vjp; arrays of numpy are not asked for gradients. Each
        element is checked by its own error bound (mha_gradient_bound), where the output is right.
    """
    return Examination(kernel, layout, dtype, has, level, arrays, conventions, only, backward).report()


@dataclass(frozen=True)
class TestCase:
    """A test case of the suite: its name, what a kernel needs for it, and the arrays and keywords of the call."""

    name: str
    needs: tuple[str, ...]
    inputs: tuple[Any, ...] = field(repr=False)
    settings: dict[str, Any] = field(repr=False)


def test_cases(*, layout: str = "BHTD", dtype: Any = "float32", has: Optional[Collection[str]] = None,
               level: str = "full", arrays: str = "numpy", only: Optional[str] = None) -> Iterator[TestCase]:
    """The test cases that mha.conform asks, one by one, such as for a profile of a kernel.

        for case in mha.test_cases(level="smoke", has={"causal", "gqa"}):
            output = kernel(*case.inputs, **case.settings)

    Arguments as in mha.conform.
    """
    code, wrap = a.float_type("dtype", dtype, TYPES), wrapper(arrays)
    heads_first(layout)
    for row in _chosen(has, level, only):
        yield TestCase(row.name, row.needs, *Case(row, code).ask(layout, wrap))


test_cases.__test__ = TestCase.__test__ = False  # type: ignore[attr-defined]  # pytest collects neither


def _has(has: Optional[Collection[str]], row: Row) -> bool:
    return has is None or _words(has).issuperset(row.needs)


def _words(has: Collection[str]) -> set[str]:
    return set(a.words("has", has))
