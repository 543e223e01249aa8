"""Any kernel, asked: the conformance suite as a call in Python, and what a kernel answers."""
from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Collection, Iterator, Mapping, Optional

from . import arrays as a
from . import conform_page, report_schema
from ._library import call, lib
from .errors import Error
from .files import path_of
from .judge import Diagnosis, Verdict
from .pairs import run_pair
from .questions import DIALECTS, LEVELS, TYPES, VERSION, Question, Row, readings_of, rows, wrapper
from .reduce import Reduced, Reducer
from .shapes import heads_first
from .tables import Table

_About = tuple[str, str, str, tuple[str, ...]]  # of a question: its name, family, regime, and what it needs
_DIAGNOSED = 40  # failures that are diagnosed; one takes about half a second


@dataclass(frozen=True)
class Answer:
    """What a kernel answered to one question.

    outcome: "passed", "failed", or "refused": the kernel raised an exception, and may lack a feature of the test case.
    reason: of what did not pass. max_abs, atol, rtol: |exact - yours| <= atol + rtol |exact| was allowed.
    diagnosis: of the first failures; None of the others.
    rows: (B, h, T_q), of failures of an output with a diagnosis: the largest error of each row over what is allowed.
    """

    question: str
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
        """Names of the variants of attention that give the answer."""
        return [] if self.diagnosis is None else self.diagnosis.names

    @property
    def because(self) -> str:
        """The first name, else the first clue, else the reason."""
        if self.names:
            return self.names[0] + (f", or {len(self.names) - 1} more" if len(self.names) > 1 else "")
        return self.reason if self.diagnosis is None else (*self.diagnosis.clues, self.reason)[0]

    def to_dict(self) -> dict[str, Any]:
        """The fields but rows, the diagnosis as its names and clues; None for a number that is NaN or infinite."""
        found = {name: getattr(self, name) for name in ("question", "family", "regime", "outcome", "reason",
                                                        "mismatches", "elements")}
        numbers = {name: getattr(self, name) for name in ("max_abs", "atol", "rtol")}
        return {**found, **{name: x if math.isfinite(x) else None for name, x in numbers.items()},
                "needs": list(self.needs), "variants": self.names,
                "clues": [] if self.diagnosis is None else list(self.diagnosis.clues)}


@dataclass
class Report:
    """What a kernel answered to the suite. print(report) says what failed and why, dialects, and what was refused.

    answers: one for each question that was asked. dialects: the reading of each dialect that was asked about;
    `declared`: those that were not looked for.
    """

    dtype: str
    level: str
    answers: list[Answer]
    dialects: dict[str, str]
    declared: tuple[str, ...] = ()
    suite: str = VERSION
    _save: Callable[[str, str], None] = field(default=lambda name, path: None, repr=False)
    _reduce: Callable[[str], Optional[Reduced]] = field(default=lambda name: None, repr=False)

    def _of(self, outcome: str) -> list[Answer]:
        return [answer for answer in self.answers if answer.outcome == outcome]

    @property
    def failed(self) -> list[Answer]:
        """What was answered wrongly."""
        return self._of("failed")

    @property
    def refused(self) -> list[Answer]:
        """What raised an exception."""
        return self._of("refused")

    @property
    def passed(self) -> bool:
        """Whether something was answered, and nothing wrongly."""
        return not self.failed and bool(self._of("passed"))

    def __bool__(self) -> bool:
        return self.passed

    def table(self) -> Table:
        """One row for each wrong answer."""
        return Table(("question", "max abs", "allowed", "differ", "of", "because"),
                     [(x.question, x.max_abs, x.atol, x.mismatches, x.elements, x.because) for x in self.failed])

    def refusals(self) -> Table:
        """What was refused: the first words of the kernel, how many questions, and what these need."""
        found: dict[str, list[Answer]] = {}
        for x in self.refused:
            found.setdefault(x.reason.partition("\n")[0], []).append(x)
        return Table(("refused", "questions", "of those that need"),
                     [(reason, len(those), " ".join(sorted({need for x in those for need in x.needs}))[:60])
                      for reason, those in found.items()])

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON Schema (draft 2020-12) of what to_dict() returns."""
        return report_schema.schema()

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it: schema() says what."""
        return {"suite": self.suite, "dtype": self.dtype, "level": self.level, "passed": len(self._of("passed")),
                "failed": len(self.failed), "refused": len(self.refused),
                "dialects": [{"dialect": name, "reading": reading, "meaning": DIALECTS[name].readings[reading],
                              "how": "declared" if name in self.declared else "found"}
                             for name, reading in self.dialects.items()],
                "answers": [answer.to_dict() for answer in self.answers]}

    def to_html(self) -> str:
        """One HTML page that needs no network: verdicts, clues, dialects, refusals, and the smallest calls that still
        fail, for which the kernel is asked again."""
        return conform_page.page(self)

    def badge(self) -> str:
        """A small picture (SVG) of the suite, and how many of the answers are right."""
        return conform_page.badge(self)

    def save(self, question: str, path: Any) -> None:
        """Asks a question once more, and writes it with the answer as a case file, for mha check and mha diagnose."""
        self._save(question, os.fsdecode(path_of("path", path)))

    def reduce(self, question: str) -> Optional[Reduced]:
        """Makes a failure small: the fewest batch rows, heads, tokens and features, and the plainest numbers, with
        which the kernel still fails, or its gradients where these alone are wrong, as a case file (.save) and ten lines
        of Python (.script): with the fewest sequences of a ragged batch, entries of lists and rows of a page as well.
        None where the question has weights of norms or of an extra row, or where the kernel is right."""
        return self._reduce(question)

    def __str__(self) -> str:
        parts = []
        if self.failed:
            parts.append(f"failed\n{self.table()}")
        if self.dialects:
            parts.append(str(Table(("dialect", "reading", "meaning"),
                                   [(name, reading, DIALECTS[name].readings[reading])
                                    for name, reading in self.dialects.items()])))
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
        """The kernel's answer. The question is one of its own: a kernel may write to its inputs."""
        question = Question(row, self.dtype)
        asked = question.ask(self.layout, self.wrap)
        return question.seen(self.layout, self.kernel(*asked.inputs, **asked.settings))

    def run(self, row: Row, readings: Any) -> tuple[list[a.Tensor], dict[str, a.Tensor]]:
        """The answer, and where the question asks for them the gradients of q, k and v."""
        if "backward" not in row.needs:
            return self.call(row), {}
        question = Question(row, self.dtype)
        asked = question.ask(self.layout, self.wrap)
        do = Question(row, self.dtype, readings).d_output(self.layout, self.wrap)
        back = None if self.backward is None else partial(self.backward, **asked.settings)
        output, _, found = run_pair(partial(self.kernel, **asked.settings), back, asked.inputs, do, 0)
        return question.seen(self.layout, output), question.gradients(self.layout, found)

    def reading(self, row: Row, name: str, others: Mapping[str, str]) -> Optional[str]:
        """The first reading of a dialect, beside the known ones, in which the kernel answers a question rightly."""
        try:
            answer = self.call(row)
        except (Exception, SystemExit):  # told when the question is asked among the others
            return None
        for reading in DIALECTS[name].readings:
            if Question(row, self.dtype, readings_of({**others, name: reading})).judge(answer).passed:
                return reading
        return None

    def answer(self, row: Row, readings: Any) -> Answer:
        """What the kernel answers to a question of the suite."""
        about = row.name, row.family, row.regime, row.needs
        try:
            answer, gradients = self.run(row, readings)
        except (Exception, SystemExit) as raised:
            can = self.sure or not row.needs
            failed = can and not isinstance(raised, NotImplementedError) or isinstance(raised, SystemExit)
            return Answer(*about, "failed" if failed else "refused", f"{type(raised).__name__}: {raised}")
        question = Question(row, self.dtype, readings)
        verdict = question.judge(answer, gradients)
        found = self._judged(about, verdict, lambda stage: question.diagnose(answer, gradients, stage))
        if found.diagnosis is not None and verdict.first == "output":
            found = replace(found, rows=question.rows_off(answer, found.atol, found.rtol))
        return found

    def _judged(self, about: _About, verdict: Verdict, diagnose: Callable[[str], Diagnosis]) -> Answer:
        """What a verdict says, of the first failures with a diagnosis."""
        stage = next((s for s in verdict.stages if s.name == verdict.first), verdict.stages[0])
        diagnosis = None
        if verdict.failed and self.diagnosed < _DIAGNOSED:
            self.diagnosed += 1
            try:
                diagnosis = diagnose(stage.name)
            except Error:
                pass
        return Answer(*about, "passed" if verdict.passed else "failed", verdict.reason, stage.max_abs, stage.atol,
                      stage.rtol, stage.mismatches, stage.elements, diagnosis)


def _chosen(has: Optional[Collection[str]], level: str, only: Optional[str]) -> Iterator[Row]:
    most = a.choice("level", level, LEVELS)
    if has is not None:
        call(lib.mha_conform_has, " ".join(sorted(_words(has))).encode(), most)
    for row in rows():
        if row.level <= most and _has(has, row) and (only is None or only in row.name):
            yield row


class Examination:
    """A kernel, the questions that it is asked (`rows`), and the dialect that it was found to have or is held to. The
    parameters are those of conform."""

    def __init__(self, kernel: Callable[..., Any], layout: str, dtype: Any, has: Optional[Collection[str]], level: str,
                 arrays: str, dialect: Optional[Mapping[str, str]] = None, only: Optional[str] = None,
                 backward: Optional[Callable[..., Any]] = None) -> None:
        if not callable(kernel):
            raise TypeError(f"kernel: expected a function, found {type(kernel).__name__}")
        if dialect is not None and not isinstance(dialect, Mapping):
            raise TypeError(f"dialect: expected readings by dialect, found {type(dialect).__name__}")
        if only is not None:
            a.text("only", only)
        if backward is not None and not callable(backward):
            raise TypeError(f"backward: expected a function, found {type(backward).__name__}")
        differentiable = backward is not None or arrays != "numpy"
        if has is not None and "backward" in _words(has) and not differentiable:
            raise TypeError("backward: needed beside arrays of numpy, which have no autograd: backward(q, k, v, "
                            "output, do) returns dq, dk and dv")
        self.rows = [row for row in _chosen(has, level, only) if differentiable or "backward" not in row.needs]
        if not self.rows:
            raise ValueError("only: no question of this level, with what the kernel has, has such a name")
        self._words = set() if has is None else _words(has)
        self.level, self.layout, self.declared = level, layout, tuple(dialect or ())
        self._asker = _Asker(kernel, layout, a.float_type("dtype", dtype, TYPES), arrays, has is not None, backward)
        Question(self.rows[0], self._asker.dtype).ask(layout, self._asker.wrap)  # TypeError: no such arrays here
        self.dialects = dict(dialect or {})
        readings_of(self.dialects)
        self._every = {row.name: row for row in rows()}
        for probe in (True, False):  # first the questions that differ by one dialect alone
            for name, d in DIALECTS.items():
                for row in [self._every[d.probe]] if probe else (row for row in self.rows if row.level == 0):
                    if name in self.dialects or not (_has(has, row) and Question(row, self._asker.dtype).differs(d)):
                        continue
                    found = self._asker.reading(row, name, {} if probe else self.dialects)
                    if found is not None:
                        self.dialects[name] = found
        self._held = readings_of(self.dialects)

    def answer(self, row: Row) -> Answer:
        """What the kernel answers to a question."""
        return self._asker.answer(row, self._held)

    def report(self) -> Report:
        """All answers."""
        return Report(a.NAMES[self._asker.dtype], self.level, [self.answer(row) for row in self.rows], self.dialects,
                      self.declared, _save=self.save, _reduce=self.reduce)

    def _named(self, question: str) -> Row:
        if question not in self._every:
            raise ValueError(f"question: expected the name of one, found {question!r}")
        return self._every[question]

    def save(self, question: str, path: str) -> None:
        """See Report.save."""
        row = self._named(question)
        answer, gradients = self._asker.run(row, self._held)
        asked = Question(row, self._asker.dtype, self._held)
        right = bool(gradients) and asked.judge(answer).passed
        asked.save(os.fsencode(path), [] if right else answer, gradients if right else {})

    def reduce(self, question: str) -> Optional[Reduced]:
        """See Report.reduce."""
        row, asker = self._named(question), self._asker
        q, k, v, settings = Question(row, asker.dtype).plain(self.layout)
        do = Question(row, asker.dtype, self._held).plain_d_output()
        reducer = Reducer(asker.kernel, self.layout, asker.dtype, asker.arrays, self.dialects, asker.backward,
                          {*row.needs, *self._words})
        found = None if do is None else reducer.reduce(q, k, v, settings, do)
        return found or reducer.reduce(q, k, v, settings)


def conform(kernel: Callable[..., Any], *, layout: str = "BHTD", dtype: Any = "float32",
            has: Optional[Collection[str]] = None, level: str = "full", arrays: str = "numpy",
            dialect: Optional[Mapping[str, str]] = None, only: Optional[str] = None,
            backward: Optional[Callable[..., Any]] = None) -> Report:
    """Asks a kernel the questions of mha-conform 1.2, and judges its answers.

        print(mha.conform(my_attention, dtype="bfloat16", arrays="torch", has={"causal", "gqa", "window"}))

    kernel: called as mha.scaled_dot_product_attention (layout "BHTD") or mha.attention ("BTHD", "BTNH"), with only the
        keywords that a question needs: kernel(q, k, v, is_causal=True, enable_gqa=True). Beside mha.SETTINGS these are
        past_key and past_value, (batch, key/value heads, rows, width) in the axes of key, for a cache; page_table and
        page_lengths, where k and v are pools of pages; q_norm, k_norm and so on, weights of norms; return_lse=True,
        which asks for (output, lse).
    dtype: what the kernel computes in, and the type of its inputs: float32, float16 or bfloat16.
    has: what the kernel has, of the words in mha.NEEDS: only questions that need no more are asked, and an exception is
        a failure, but for NotImplementedError. None: everything is asked, and an exception is a refusal, but a failure
        where the question needs none of the words.
    level: "smoke" (seconds), "full" (minutes), or "large", with sequences of 65,537 keys.
    arrays: "numpy", "torch" or "jax": of what kind every array is that the kernel is given, masks, tables and lengths
        as well. Where JAX has no 64 bits, arrays of float64 and int64 are of numpy.
    dialect: readings by dialect, {"empty": "nan"}: the kernel is held to them. Others are found by asking.
    only: questions whose names have this text in them.
    backward: of questions that need "backward", the gradients of q, k and v from do, the gradient of the output, in
        its axes: backward(q, k, v, output, do, **settings) returns (dq, dk, dv), in the axes of q, k and v. None: of
        torch autograd runs through the kernel, of JAX jax.vjp; arrays of numpy are not asked for gradients. Each
        element is judged by its own error bound (mha_gradient_bound), where the output is right.
    """
    return Examination(kernel, layout, dtype, has, level, arrays, dialect, only, backward).report()


def _has(has: Optional[Collection[str]], row: Row) -> bool:
    return has is None or _words(has).issuperset(row.needs)


def _words(has: Collection[str]) -> set[str]:
    return set(a.words("has", has))
