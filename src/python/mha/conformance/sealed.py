"""The sealed judge: it asks a kernel's process, ends that process, and only then computes the expected values."""
from __future__ import annotations

import hashlib
import os
import pathlib
import random
import shlex
import shutil
import time
from dataclasses import dataclass, field
from typing import Callable, Collection, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.errors import Error
from ..core.files import load, save
from . import arena
from .conform import _chosen, _DIAGNOSED, choice_with, find_conventions
from .enclosure import Broken, Enclosure, FunctionRunner, close_off, run_command
from .suite import TYPES, Case, Row, _memory, choices_of

_LONGER = 40  # tokens that a private length has more than the suite's, at most
_STARTS = 4  # processes of a kernel; later calls are not asked
_MOST = 1e9  # the largest error that is told
KINDS = ("first", "other numbers", "other length", "again")
OUTCOMES = {
    "passed": "all calls are right", "refused": "an exception in every test case with these needs",
    "not-checked": "rounding may leave the type's range", "wrong-numbers": "an error above what rounding allows",
    "exception": "the kernel raised one",
    "out-of-memory": "the kernel raised an exception that says so", "exit": "the kernel ended its process",
    "crash": "a signal ended the process", "timeout": "no result in time", "malformed": "no array of the right shape",
    "narrowed": "a result of a type narrower than the inputs", "inputs-changed": "the kernel wrote to its inputs",
    "fence-written": "the kernel wrote outside its arrays", "forged-reply": "a reply that the judge did not ask for",
    "changed-after-return": "a result was written to after its return", "no-result": "no file of results",
    "not-asked": "the kernel ended too many processes"}
GOOD = ("passed", "refused", "not-checked")
_Read = Callable[[], Sequence[a.Tensor]]


class SealedCall(NamedTuple):
    """One call of a test case: its kind, the draw of its numbers, tokens more, powers of two for q, k, v, a region."""

    row: Row
    kind: str
    seed: int
    longer: int = 0
    shift: tuple[int, int, int] = (0, 0, 0)
    slot: int = 0


@dataclass
class Answer:
    """The kernel's answer to a call; its outcome stays "passed" until the judge finds a fault."""

    call: SealedCall
    outcome: str = "passed"
    reason: str = ""
    tensors: list[a.Tensor] = field(default_factory=list)
    error: Optional[float] = None  # the largest error over the allowed error, if there are numbers
    stage: str = ""  # the first wrong stage

    def fault(self, outcome: str, reason: object = "") -> None:
        """Set the outcome, unless an earlier one is set."""
        if self.outcome == "passed":
            self.outcome, self.reason = outcome, str(reason)[:300]


def plan(asked: Iterable[Row], seed: int) -> list[SealedCall]:
    """Calls in a private order, four for each test case: its numbers, other numbers in the same memory, another length,
    and after calls of other shapes the first numbers again."""
    draw, order = random.Random(seed), list(asked)
    draw.shuffle(order)
    found, last = list[SealedCall](), list[SealedCall]()
    for i, row in enumerate(order):
        free = row.regime == "normal" and not {"strides", "pages"} & set(row.needs)
        shift = (-draw.randrange(5), -draw.randrange(4), draw.randrange(-6, 7)) if free else (0, 0, 0)
        seeds = [draw.getrandbits(63) | 1 for _ in range(3)]
        first = SealedCall(row, "first", seeds[0], slot=i % 2)
        found += [first, SealedCall(row, "other numbers", seeds[1], 0, shift, i % 2),
                  SealedCall(row, "other length", seeds[2], 1 + draw.randrange(_LONGER), shift, 2), *last]
        last = [first._replace(kind="again")]
    return found + last


def _scale(case: Case, shift: Sequence[int]) -> None:
    """Multiply q, k and v by powers of two."""
    for view, power in zip((case.call.query, case.call.key, case.call.value), shift):
        numbers = _memory(view, case.handle)
        if case.dtype == abi.BF16:
            wide = (numbers.astype(np.uint32) << 16).view(np.float32) * np.float32(2.0**power)
            numbers[...] = wide.view(np.uint32) >> 16
        else:
            numbers *= numbers.dtype.type(2.0**power)


def digest(path: Union[str, pathlib.Path]) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def own_digest() -> str:
    """SHA-256 over the names and digests of this module's files."""
    root, every = pathlib.Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(x for x in root.rglob("*") if x.is_file() and x.parent.name != "__pycache__"):
        every.update(f"{path.relative_to(root)} {digest(path)}\n".encode())
    return every.hexdigest()


class Judge:
    """One run: kernel is FILE.py:FUNCTION with an absolute path, or command reads {in} and writes {out}."""

    def __init__(self, kernel: Optional[str], command: Optional[str], *, layout: str, dtype: str, level: str,
                 has: Optional[Collection[str]], arrays: str, seed: int, limit: float) -> None:
        self.kernel, self.command, self.seed, self.sure = kernel or "", command or "", seed, has is not None
        self.layout, self.dtype, self.arrays = "BTHD" if command else layout, a.float_type("d", dtype, TYPES), arrays
        never = {"backward", "strides", "pages"} if command else {"backward"}
        self.rows = [row for row in _chosen(has, level, None) if not never & set(row.needs)]
        if kernel and arrays == "numpy":
            Case(self.rows[0], self.dtype).ask(layout, a.wrap_numpy)  # TypeError: bfloat16 without ml_dtypes
        self.answers: list[Answer] = []
        self.conventions: dict[str, str] = {}
        self.limit, self.captured = limit, ""

    def case(self, call: SealedCall) -> Case:
        """The test case of a call, in the conventions that are known."""
        found = Case(call.row, self.dtype, choices_of(self.conventions, call.seed, call.longer))
        if any(call.shift):
            _scale(found, call.shift)
        return found

    # ---------------------------------------------------------------- asking

    def ask(self) -> None:
        """Ask all calls; end all processes of the kernel."""
        close_off()
        words = shlex.split(self.command) or [self.kernel.rpartition(":")[0]]
        before = {x: digest(x) for x in [shutil.which(words[0]) or words[0], *words[1:]] if os.path.isfile(x)}
        self.files = {os.path.basename(path): found for path, found in before.items()}
        enclosure = Enclosure(self.limit)
        try:
            (self._ask_command if self.command else self._ask_function)(enclosure)
        finally:
            enclosure.close()
            self.captured = enclosure.captured.decode("utf-8", "replace")
        self.changed = sorted(os.path.basename(path) for path, found in before.items()
                              if not os.path.isfile(path) or digest(path) != found)

    def _ask_all(self, ask: Callable[[Answer, Case], _Read]) -> None:
        """Append the answers to all calls; `ask` returns a function that reads the tensors of a result."""
        starts = 0
        for call in plan(self.rows, self.seed):
            found, case = Answer(call), self.case(call)
            self.answers.append(found)
            if starts >= _STARTS:
                found.fault("not-asked")
                continue
            try:
                self._take(found, case, ask(found, case))
            except Broken as broken:
                starts += broken.outcome in ("exit", "crash", "timeout", "forged-reply")
                found.fault(broken.outcome, broken)

    def _take(self, found: Answer, case: Case, read: _Read) -> None:
        """Keep the tensors of a result that have the right shapes."""
        try:
            tensors = read()
            found.tensors = case.shaped(self.layout, tensors)
        except (Error, IndexError, KeyError, OSError, TypeError, ValueError) as reason:
            found.fault("malformed", f"{type(reason).__name__}: {reason}")
            return
        for x in tensors:
            if x.dtype not in (abi.F64, abi.F32, self.dtype):
                found.fault("narrowed", f"expected {a.NAMES[self.dtype]} or wider, found {a.NAMES[x.dtype]}")

    def _ask_function(self, enclosure: Enclosure) -> None:
        runner = FunctionRunner(enclosure, self.kernel, self.arrays)
        numbers: dict[int, Answer] = {}

        def ask(found: Answer, case: Case) -> _Read:
            image = arena.Image(case.ask(self.layout, lambda array, code: array))
            said = runner.ask(image, found.call.slot)
            numbers[runner.number] = found
            found.outcome = image.damage(runner.memory, found.call.slot) or found.outcome
            return lambda: arena.results(runner.memory, said)

        self._ask_all(ask)
        time.sleep(0.05)  # for threads that write late
        runner.finish()
        for number in runner.late & set(numbers):
            numbers[number].outcome = "changed-after-return"

    def _ask_command(self, enclosure: Enclosure) -> None:
        given, result = (os.path.join(enclosure.folder, f"{name}.safetensors") for name in ("case", "result"))

        def ask(found: Answer, case: Case) -> _Read:
            write_case(case, given)
            before = digest(given)
            if os.path.lexists(result):
                os.remove(result)
            run_command(enclosure, self.command, {"in": given, "out": result})
            if not os.path.isfile(given) or digest(given) != before:
                found.outcome = "inputs-changed"
            if os.path.islink(result) or not os.path.isfile(result):
                raise Broken("no-result", "the command wrote no file {out}")
            return lambda: read_result(case, result)

        self._ask_all(ask)

    # ---------------------------------------------------------------- comparing

    def compare(self) -> dict[str, a.Json]:
        """Compute the expected values; return the outcome of each test case with the rest of a receipt."""
        firsts = {x.call.row.name: x for x in self.answers if x.call.kind == "first" and x.tensors}

        def choose(row: Row, name: str, known: Mapping[str, str]) -> Optional[str]:
            x = firsts.get(row.name)
            return None if x is None else choice_with(x.tensors, row, self.dtype, name, known, x.call.seed)

        find_conventions(self.conventions, self.rows, None, self.dtype, choose)
        for x in self.answers:
            if x.tensors:
                self._compare(x)
        self._refuse()
        results = self._results()
        passed, refused = (sum(x["outcome"] == word for x in results) for word in ("passed", "refused"))
        failed = sum(x["outcome"] not in GOOD for x in results)
        verdict = "failed" if failed or self.changed else "passed" if passed else "not checked"
        return {"verdict": verdict, "conventions": self.conventions, "passed": passed, "failed": failed,
                "refused": refused, "changed_files": self.changed, "output": self.captured, "results": results}

    def _compare(self, x: Answer) -> None:
        case = self.case(x.call)
        verdict = case.check(x.tensors)
        if verdict.outcome == "skipped":
            x.fault("not-checked", verdict.reason)
            return
        most = max((case.most_off(x.tensors, s) for s in verdict.stages if s.checked and s.name in case.results),
                   default=0.0)
        x.error = min(most, 1.0) if verdict.passed else min(max(most, 1.0), _MOST)
        if verdict.failed:
            x.stage = verdict.first or "output"
            x.fault("wrong-numbers", verdict.reason)

    def _refuse(self) -> None:
        """Without `has`, an exception is a refusal if every call of the test cases with the same needs raised one."""
        by_needs: dict[tuple[str, ...], list[Answer]] = {}
        for x in self.answers:
            by_needs.setdefault(x.call.row.needs, []).append(x)
        for needs, those in by_needs.items():
            if needs and not self.sure and all(x.outcome in ("exception", "no-result") for x in those):
                for x in those:
                    x.outcome = "refused"

    def _results(self) -> list[dict[str, a.Json]]:
        """One result for each test case; of the first wrong numbers with a bug."""
        by_case: dict[str, list[Answer]] = {row.name: [] for row in self.rows}
        for x in self.answers:
            by_case[x.call.row.name].append(x)
        found, diagnosed = [], 0
        for name, those in by_case.items():
            first = next((x for x in those if x.outcome not in GOOD), those[0])
            wrong, bug = next((x for x in those if x.stage), None), None
            if wrong is not None and diagnosed < _DIAGNOSED:
                diagnosed += 1
                bug = self._bug(wrong)
            found.append({"case": name, "regime": first.call.row.regime, "outcome": first.outcome,
                          "call": first.call.kind, "bug": bug, "reason": first.reason,
                          "error": max((x.error for x in those if x.error is not None), default=None)})
        return found

    def _bug(self, x: Answer) -> Optional[str]:
        """The name of the known bug with these numbers, else the first clue."""
        try:
            found = self.case(x.call).diagnose(x.tensors, {}, x.stage)
        except Error:
            return None
        return (*found.names, *found.clues, None)[0]


def read_result(case: Case, path: str) -> list[a.Tensor]:
    """Tensors of a result file."""
    with load(path) as file:
        return [a.floats(name, file[name]) for name in case.results if name in file]


def write_case(case: Case, path: str) -> None:
    """Write a test case as a case file without its name and without expected values."""
    whole = os.path.join(os.path.dirname(path), "whole.safetensors")
    case.save(os.fsencode(whole), [], {})
    with load(whole) as file:
        tensors = {name: file[name] for name in file if not name.startswith("expected")}
        said = {name: text for name, text in file.metadata.items() if name not in ("name", "note")}
        save(path, tensors, said)
    os.remove(whole)
