"""The conformance suite as a call: runs a kernel on test cases and reports its results."""
from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Collection, Iterator, Mapping, Optional

from .._renamed import keywords
from ..core import abi
from ..core import arrays as a
from ..core.devices import has_no_memory
from ..core.errors import Error
from ..core.library import call, lib
from ..core.shapes import heads_first
from ..judge.check import Diagnosis, Verdict
from .autodiff import run_pair
from .reduce import Reduced, Reducer
from .report import Report, Result
from .suite import CONVENTIONS, LEVELS, TYPES, Case, Row, choices_of, on_device, rows, wrapper

_About = tuple[str, str, str, tuple[str, ...]]  # of a case: its name, family, regime, and what it needs
_DIAGNOSED = 40  # failures that are diagnosed; one takes about half a second


def _reason(raised: BaseException) -> str:
    """What an exception says; first that memory is lacking, which is no fault of its numbers."""
    said = f"{type(raised).__name__}: {raised}"
    return f"out of memory: {said}" if has_no_memory(raised) else said


class _Asker:
    """A kernel, and how it is called."""

    def __init__(self, kernel: Callable[..., object], layout: str, dtype: int, arrays: str, sure: bool,
                 backward: Optional[Callable[..., object]] = None) -> None:
        heads_first(layout)
        self.kernel, self.layout, self.dtype, self.backward = kernel, layout, dtype, backward
        self.arrays, self.wrap, self.sure, self.diagnosed = arrays, wrapper(arrays), sure, 0

    def call(self, row: Row) -> list[a.Tensor]:
        """The kernel's result. The test case is one of its own: a kernel may write to its inputs."""
        case = Case(row, self.dtype)
        asked = case.ask(self.layout, self.wrap)
        return case.seen(self.layout, self.kernel(*asked.inputs, **asked.settings))

    def run(self, row: Row, choices: abi.ConformChoices) -> tuple[list[a.Tensor], dict[str, a.Tensor]]:
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
        """The first choice of a convention, with the known ones, with which the kernel passes a test case."""
        try:
            result = self.call(row)
        except (Exception, SystemExit):  # told when the test case is asked among the others
            return None
        return choice_with(result, row, self.dtype, name, others)

    def result(self, row: Row, choices: abi.ConformChoices) -> Result:
        """The kernel's result of a test case of the suite."""
        about = row.name, row.family, row.regime, row.needs
        try:
            result, gradients = self.run(row, choices)
        except (Exception, SystemExit) as raised:
            can = self.sure or not row.needs
            failed = can and not isinstance(raised, NotImplementedError) or isinstance(raised, SystemExit)
            return Result(*about, "failed" if failed else "refused", _reason(raised))
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
        call(lib.mha_conform_has, " ".join(sorted(a.words("has", has))).encode(), most)
    for row in rows():
        if row.level <= most and _has(has, row) and (only is None or only in row.name):
            yield row


def choice_with(result: list[a.Tensor], row: Row, dtype: int, name: str, others: Mapping[str, str],
                seed: int = 0) -> Optional[str]:
    """The first choice of a convention, next to the known ones, with which a result of a test case is right."""
    for choice in CONVENTIONS[name].choices:
        if Case(row, dtype, choices_of({**others, name: choice}, seed)).check(result).passed:
            return choice
    return None


def find_conventions(conventions: dict[str, str], asked: Collection[Row], has: Optional[Collection[str]], dtype: int,
                     choose: Callable[[Row, str, Mapping[str, str]], Optional[str]]) -> None:
    """Add the conventions that are missing, first by the test cases that differ by one convention only. `choose` tells
    the choice of a convention by the result of a test case."""
    every = {row.name: row for row in rows()}
    for probe in (True, False):
        for name, d in CONVENTIONS.items():
            for row in [every[d.probe]] if probe else (row for row in asked if row.level == 0):
                if name not in conventions and _has(has, row) and Case(row, dtype).differs(d):
                    found = choose(row, name, {} if probe else conventions)
                    if found is not None:
                        conventions[name] = found


def _check_parameters(kernel: Callable[..., object]) -> None:
    """Raises TypeError if a parameter after q, k and v has no default: mha passes only what a test case sets."""
    try:
        parameters = inspect.signature(kernel).parameters.values()
    except (TypeError, ValueError):  # a function of C without a signature
        return
    required = [x for x in parameters if x.default is x.empty and x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
    extra = [x.name for i, x in enumerate(required) if i > 2 or x.kind == x.KEYWORD_ONLY]
    if extra:
        raise TypeError(f"kernel: expected a default of {extra[0]}, found none; mha passes only what a test case sets")


class Examination:
    """A kernel, its test cases (`rows`), and the conventions that were found or declared. Parameters as of conform."""

    def __init__(self, kernel: Callable[..., object], layout: str, dtype: a.Type, has: Optional[Collection[str]],
                 level: str, arrays: str, conventions: Optional[Mapping[str, str]] = None, only: Optional[str] = None,
                 backward: Optional[Callable[..., object]] = None) -> None:
        if not callable(kernel):
            raise TypeError(f"kernel: expected a function, found {type(kernel).__name__}")
        if only is None:  # else a test case may set all parameters
            _check_parameters(kernel)
        if conventions is not None and not isinstance(conventions, Mapping):
            raise TypeError(f"conventions: expected choices by convention, found {type(conventions).__name__}")
        if backward is not None and not callable(backward):
            raise TypeError(f"backward: expected a function, found {type(backward).__name__}")
        differentiable = backward is not None or arrays != "numpy"
        if has is not None and "backward" in _words(has) and not differentiable:
            raise TypeError("backward: expected a function with arrays of numpy, which have no autograd, found None; "
                            "give backward(q, k, v, output, do), which returns dq, dk and dv")
        self.rows = [row for row in _chosen(has, level, only) if differentiable or "backward" not in row.needs]
        if not self.rows:
            raise ValueError("only: expected a part of the name of a test case of this level that needs no more than "
                             f"the kernel has, found {only!r}")
        self._words = set() if has is None else _words(has)
        self.level, self.layout, self.declared = level, layout, tuple(conventions or ())
        self._asker = _Asker(kernel, layout, a.float_type("dtype", dtype, TYPES), arrays, has is not None, backward)
        Case(self.rows[0], self._asker.dtype).ask(layout, self._asker.wrap)  # TypeError: no such arrays here
        self.conventions = dict(conventions or {})
        choices_of(self.conventions)
        self._every = {row.name: row for row in rows()}
        find_conventions(self.conventions, self.rows, has, self._asker.dtype, self._asker.choice)
        self._held = choices_of(self.conventions)

    def result(self, row: Row) -> Result:
        """The kernel's result of a test case."""
        return self._asker.result(row, self._held)

    def report(self) -> Report:
        """All results."""
        return Report(a.NAMES[self._asker.dtype], self.level, [self.result(row) for row in self.rows], self.conventions,
                      self.declared, kernel=getattr(self._asker.kernel, "__name__", "kernel"), _save=self.save,
                      _reduce=self.reduce)

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
def conform(kernel: Callable[..., object], *, layout: str = "BHTD", dtype: a.Type = "float32",
            has: Optional[Collection[str]] = None, level: str = "full", arrays: str = "numpy",
            conventions: Optional[Mapping[str, str]] = None, only: Optional[str] = None,
            backward: Optional[Callable[..., object]] = None, device: Optional[str] = None) -> Report:
    """Run a kernel on the test cases of mha-conform 1.2 and check its results.

    Parameters
    ----------
    kernel : callable
        Called as mha.scaled_dot_product_attention (layout "BHTD"), or as mha.attention with that layout ("BTHD",
        "BTNH"), with only the keywords that a test case needs: kernel(q, k, v, is_causal=True, enable_gqa=True).
        Further keywords: past_key and past_value, (batch, key/value heads, rows, width) in the axes of key, for a
        cache; page_table and page_lengths, if k and v are pools of pages; q_norm, k_norm, ..., weights of norms;
        return_lse=True, for (output, lse).
    layout : {"BHTD", "BTHD", "BTNH"}, default "BHTD"
        Order of the axes of its arrays.
    dtype : {"float32", "float16", "bfloat16"}, default "float32"
        Type of its inputs and of its arithmetic.
    has : collection of str, default None
        Features of the kernel, words of mha.NEEDS; "causal/mask": both, but not in one call. mha then asks only test
        cases that need no more, and each exception except NotImplementedError is a failure. None: mha asks everything,
        and only an exception in a test case that needs no feature is a failure.
    level : {"smoke", "full", "large"}, default "full"
        Seconds, minutes, or with sequences of 65,537 keys.
    arrays : {"numpy", "torch", "jax", "cupy"}, default "numpy"
        Kind of all arrays, also of masks and lengths. If JAX has no 64 bits, arrays of float64 and int64 are of numpy.
    conventions : dict from str to str, default None
        Choices by convention, {"empty": "nan"}. mha finds the others by asking.
    only : str, default None
        Part of the names of the test cases to ask.
    backward : callable, default None
        backward(q, k, v, output, do, **settings) returns (dq, dk, dv) in the axes of q, k and v. None: torch autograd
        or jax.vjp runs through the kernel; numpy has no autograd. Each element has its own error bound.
    device : str, default None
        Where all arrays are, "cuda:0". mha reads results when the device has ended its work, and computes the expected
        values on the CPU. None: the memory of the CPU; of CuPy the first device.

    Returns
    -------
    mha.Report
        True if something was answered, and nothing wrongly. print(report) names failures, conventions and refusals.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or value, or no test case is left.

    Examples
    --------
    >>> report = mha.conform(mha.scaled_dot_product_attention, has={"causal"}, level="smoke", only="causal")
    >>> report.failed
    []
    """
    return Examination(kernel, layout, dtype, has, level, on_device(arrays, device), conventions, only,
                       backward).report()


@dataclass(frozen=True)
class TestCase:
    """A test case of the suite.

    Attributes
    ----------
    name : str
        Its name.
    needs : tuple of str
        Features that a kernel needs for it, words of mha.NEEDS.
    inputs, settings : tuple of arrays, dict
        Arguments and keywords of the kernel's call.
    """

    name: str
    needs: tuple[str, ...]
    inputs: tuple[a.ArrayLike, ...] = field(repr=False)
    settings: dict[str, Any] = field(repr=False)


def test_cases(*, layout: str = "BHTD", dtype: a.Type = "float32", has: Optional[Collection[str]] = None,
               level: str = "full", arrays: str = "numpy", only: Optional[str] = None,
               device: Optional[str] = None) -> Iterator[TestCase]:
    """Yield the test cases of mha.conform one by one, such as for a profile of a kernel.

    Parameters
    ----------
    layout, dtype, has, level, arrays, only, device
        As in mha.conform.

    Yields
    ------
    mha.TestCase
        Its inputs and settings are the arguments of the kernel.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or value.

    Examples
    --------
    >>> case = next(mha.test_cases(level="smoke", has=()))
    >>> mha.scaled_dot_product_attention(*case.inputs, **case.settings).ndim
    4
    """
    code, wrap = a.float_type("dtype", dtype, TYPES), wrapper(on_device(arrays, device))
    heads_first(layout)
    for row in _chosen(has, level, only):
        yield TestCase(row.name, row.needs, *Case(row, code).ask(layout, wrap))


test_cases.__test__ = TestCase.__test__ = False  # type: ignore[attr-defined]  # pytest collects neither


def _has(has: Optional[Collection[str]], row: Row) -> bool:
    return has is None or (_words(has).issuperset(row.needs) and all(
        len(set(word.split("/")).intersection(row.needs)) < 2 for word in a.words("has", has)))


def _words(has: Collection[str]) -> set[str]:
    return {word for words in a.words("has", has) for word in words.split("/")}
