"""python -m mha conform FILE.py:FUNCTION: the conformance suite put to a kernel, its results in plain sentences."""
from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import json
import math
import os
import secrets
import sys
from types import ModuleType
from typing import Callable, Mapping, Optional, Sequence, TypedDict

from ..core import arrays as a
from ..core.errors import BAD_REQUEST, DONE, MACHINE, NO, NOT_CHECKED
from ..core.tables import shown
from .conform import Examination
from .report import Report, Result
from .suite import ARRAYS, LEVELS, REGIMES, TYPES, on_device
from .worker import Ended, RefusedFunction, Worker

TYPE_NAMES = tuple(a.NAMES[dtype] for dtype in TYPES)
LAYOUTS = ("BHTD", "BTHD", "BTNH")
_MOST = 6  # kinds of failure and of refusal that are told


class TargetError(RefusedFunction):
    """What FILE.py:FUNCTION names cannot be had, in one line."""


def _said(where: str, reason: BaseException) -> TargetError:
    return TargetError(f"{where}: {type(reason).__name__}: {shown(str(reason).partition(chr(10))[0])}")


@functools.lru_cache(maxsize=None)
def _module(where: str) -> ModuleType:
    """The module of a file, or of a name that is imported; run once."""
    try:
        if not where.endswith(".py"):
            sys.path.insert(0, os.getcwd())
            return importlib.import_module(where)
        sys.path.insert(0, os.path.dirname(os.path.abspath(where)))
        spec = importlib.util.spec_from_file_location(os.path.basename(where)[:-3], where)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(spec.name, module)
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as reason:
        raise _said(where, reason) from reason


def load(target: str, beside: str = "") -> Callable[..., object]:
    """The function that "FILE.py:FUNCTION" or "package.module:FUNCTION" names, or of the file of another target,
    `beside`, "FUNCTION". TargetError says why there is none."""
    where, _, name = target.rpartition(":")
    where, word = where or beside.rpartition(":")[0], "backward" if beside else "kernel"
    if not where or not name:
        raise TargetError(f"{word}: expected FILE.py:FUNCTION or package.module:FUNCTION"
                          f"{', or a function of the kernel file' if beside else ''}, found {target!r}")
    found: object = _module(where)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise TargetError(f"{word}: expected a function of {where}, found no {name!r}")
    return found


# ---------------------------------------------------------------- in the worker

_opened: list[Examination] = []


def _examination(said: Mapping[str, str]) -> Examination:
    """The examination of a kernel by the options of a command."""
    has, back = said["has"], said["backward"]
    try:
        return Examination(load(said["kernel"]), said["layout"], said["dtype"],
                           None if has is None else has.replace(",", " "), said["level"], said["arrays"],
                           backward=None if back is None else load(back, said["kernel"]))
    except (TypeError, ValueError, ImportError) as reason:
        raise RefusedFunction(str(reason)) from reason


def opened(said: Mapping[str, str]) -> list[str]:
    """Opens an examination; returns the names of its test cases."""
    _opened[:] = [_examination(said)]
    return [row.name for row in _opened[0].rows]


def tested(case: str) -> tuple[str, str]:
    """The outcome of a test case of the open examination, and why, in one line."""
    result = _opened[0].result(next(row for row in _opened[0].rows if row.name == case))
    return result.outcome, failure(result) if result.outcome == "failed" else result.reason


class Examined(TypedDict):
    """The printed text and the files of the command, as JSON."""

    code: int
    text: str
    files: dict[str, str]


def examined(said: Mapping[str, str]) -> Examined:
    """The whole command: its exit code, the text to print, and files to write, by path."""
    report = _examination(said).report()
    files = {said[word]: text() for word, text in (("html", report.to_html), ("badge", report.badge)) if said[word]}
    return {"code": code_of(report), "files": files, "text": json.dumps(report.to_dict(), indent=1) if said["json"]
            else sentences(report, said["kernel"].rpartition(":")[2])}


# ---------------------------------------------------------------- sentences


def _cases(count: int) -> str:
    return f"{count} test case" + ("" if count == 1 else "s")


def failure(result: Result) -> str:
    """A wrong result in one line: how much differs, and what gives these numbers."""
    if not result.elements:
        return shown(result.because)
    found = f"{result.mismatches:,} of {result.elements:,} numbers differ"
    if math.isfinite(result.max_abs):
        found += f", the worst by {result.max_abs:.3g} where {result.atol:.3g} is allowed"
    if result.names:
        return found + f"; the numbers are those of {result.because}"
    return found + (f"; {result.because}" if result.because != result.reason else "")


def _wrong(results: Sequence[Result], asked: int) -> str:
    """What is wrong with the failures of one regime."""
    first = results[0]
    return (f"Wrong in {len(results)} of {_cases(asked)} with {first.regime} inputs ({REGIMES[first.regime]}). "
            f"The first, {first.case}: {failure(first)}.")


def _refused(reason: str, results: Sequence[Result]) -> str:
    """The test cases that one exception left without a result, and the words that all of them need."""
    common = set(results[0].needs).intersection(*(x.needs for x in results))
    needs = f", all of which need {' '.join(sorted(common))}" if common else ""
    return f"No result: {_cases(len(results))}{needs} ({shown(reason)})."


def sentences(report: Report, name: str, reduce: bool = True) -> str:
    """A report in plain sentences, the verdict last."""
    said: list[str] = []
    by_regime: dict[str, list[Result]] = {}
    for result in report.failed:
        by_regime.setdefault(result.regime, []).append(result)
    for regime, results in list(by_regime.items())[:_MOST]:
        said.append(_wrong(results, sum(x.regime == regime and x.outcome != "refused" for x in report.results)))
    if len(by_regime) > _MOST:
        said.append(f"Wrong with {len(by_regime) - _MOST} more kinds of inputs.")
    small = report.reduce(min(report.failed, key=lambda x: x.elements or sys.maxsize).case) if (
        reduce and report.failed) else None
    if small is not None:
        others = " and `backward` its backward" if small.do is not None and small.has_backward else ""
        said.append(f"The smallest call that still fails, where `kernel` is {name}{others}:\n\n{small.script}\n"
                    f"{small.note}")
    refused: dict[str, list[Result]] = {}
    for result in report.refused:
        refused.setdefault(result.reason.partition("\n")[0], []).append(result)
    said += [_refused(reason, results) for reason, results in list(refused.items())[:_MOST]]
    for convention, choice in report.conventions.items():
        if convention not in report.declared:
            said.append(f"Read as {convention} = {choice}.")
    passed = sum(x.outcome == "passed" for x in report.results)
    asked = passed + len(report.failed)
    verdict = ("PASSED" if report.passed else "WRONG" if report.failed else "NOT CHECKED")
    said.append(f"{verdict}: {name} passes {passed} of {_cases(asked)} ({report.suite}, {report.dtype}, "
                f"level {report.level}).")
    return "\n".join(said)


def code_of(report: Report) -> int:
    """The exit code that a report has."""
    return DONE if report.passed else NO if report.failed else NOT_CHECKED


# ---------------------------------------------------------------- the command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mha conform", epilog="Kernels that read and write files: mha conform --help.",
        description="Tests a kernel on the conformance suite and reports wrong results in plain sentences. Exit code "
        "0: all results are right; 1: a result is wrong, or the kernel ended its process; 2: the request is wrong; "
        "3: a file could not be written; 4: nothing could be checked. The kernel runs in a process of its own, and "
        "prints to standard error.")
    parser.add_argument("kernel", metavar="FILE.py:FUNCTION", nargs="?", help="called as "
                        "mha.scaled_dot_product_attention, with only the keywords that a test case needs; or "
                        "package.module:FUNCTION")
    parser.add_argument("--level", choices=LEVELS, default="smoke", help="how much is asked [smoke]")
    parser.add_argument("--has", metavar="WORDS", help="what the kernel has, as causal,gqa,window: an exception is "
                        "then a failure [everything is asked, and an exception is a failure only where no word is "
                        "needed]")
    parser.add_argument("--backward", metavar="FUNCTION", help="checks its gradients, too: a function of that file, or "
                        "FILE.py:FUNCTION, backward(q, k, v, output, do, ...), that returns dq, dk and dv [of tensors "
                        "of torch and arrays of jax autograd; arrays of numpy are not asked for gradients]")
    parser.add_argument("--dtype", choices=TYPE_NAMES, default="float32", help="what it computes in [float32]")
    parser.add_argument("--arrays", choices=ARRAYS, default="numpy", help="what it is given [numpy]")
    parser.add_argument("--device", metavar="NAME", help="where its arrays are, as cuda:0 [of torch and jax the CPU]")
    parser.add_argument("--layout", choices=LAYOUTS, default="BHTD", help="the axes of its arrays [BHTD]")
    parser.add_argument("--json", action="store_true", help="the report as JSON in place of sentences")
    parser.add_argument("--html", metavar="FILE", help="writes the report as one page that needs no network")
    parser.add_argument("--badge", metavar="FILE", help="writes a small picture (SVG) of how much is right")
    sealed = parser.add_argument_group("sealed runs", "Test cases with private numbers, lengths and order. The judge "
                                       "computes expected values after it ended the kernel's process.")
    sealed.add_argument("--sealed", action="store_true", help="seals the run")
    sealed.add_argument("--command", metavar="'PROGRAM {in} {out}'", help="the kernel is a program that reads a case "
                        "file and writes a tensor `output` (and `lse`)")
    sealed.add_argument("--receipt", metavar="FILE", help="writes the receipt as JSON; - is standard output")
    sealed.add_argument("--rewards", metavar="FILE", help="writes a line of JSON for each test case; - is standard "
                        "output")
    sealed.add_argument("--seed", type=_seed, metavar="N", help="repeats the draw of a published seed")
    sealed.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds for each call [60]")
    return parser


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 53:
        raise argparse.ArgumentTypeError(f"expected a whole number below 2^53, found {text!r}")
    return int(text)


def _write(path: str, text: str) -> None:
    """Writes a file that is there whole, or as it was; a pipe or a device is written to as it is."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    path = os.path.realpath(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        if os.path.exists(part):
            os.remove(part)
        raise


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command; returns its exit code."""
    parser = _parser()
    said = parser.parse_args(arguments)
    said.arrays = on_device(said.arrays, said.device)
    if said.sealed:
        return _sealed(parser, said)
    if said.kernel is None or not all(x is None for x in (said.command, said.receipt, said.rewards, said.seed)):
        parser.error("expected FILE.py:FUNCTION" if said.kernel is None else "--command, --receipt, --rewards and "
                     "--seed: expected --sealed with them")
    if "" in (said.html, said.badge) or said.html is not None and said.html == said.badge:
        print("mha conform: --html and --badge: expected the names of two files", file=sys.stderr)
        return BAD_REQUEST
    try:
        with Worker() as worker:
            found = worker.call(examined, vars(said))
    except RefusedFunction as reason:
        print(f"mha conform: {reason}", file=sys.stderr)
        return BAD_REQUEST
    except Ended as reason:
        print(f"mha conform: {shown(said.kernel)}: {reason}", file=sys.stderr)
        return NO
    return _told(found["files"], found["text"], int(found["code"]))


def _told(files: Mapping[str, str], text: str, code: int) -> int:
    """Write files and print a text; return the exit code. A file "-" is standard output; the text is then on standard
    error."""
    try:
        for path, content in files.items():
            if path == "-":
                sys.stdout.write(content)
            else:
                _write(path, content)
    except OSError as reason:
        print(f"mha conform: {shown(path)}: {reason.strerror}", file=sys.stderr)
        return MACHINE
    print(text, file=sys.stderr if "-" in files else sys.stdout)
    return code


def _shadowed() -> Optional[str]:
    """The file of a module that this folder put before the installed one; a judge that loads it is not sealed."""
    here = os.getcwd()
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return next((x for x in files if x and os.path.dirname(os.path.abspath(x)) == here), None)


def _sealed(parser: argparse.ArgumentParser, said: argparse.Namespace) -> int:
    """The command with --sealed."""
    from . import receipt, sealed  # Linux only

    given, where = said.seed is not None, (said.kernel or "").rpartition(":")[0]
    outputs = [x for x in (said.receipt, said.rewards) if x is not None]
    if (said.kernel is None) == (said.command is None) or said.kernel and not where.endswith(".py"):
        parser.error("--sealed: expected FILE.py:FUNCTION or --command 'PROGRAM {in} {out}'")
    if said.html or said.badge or said.json or said.backward:
        parser.error("--sealed: expected no --html, --badge, --json or --backward")
    if "" in outputs or len(set(outputs)) < len(outputs):
        parser.error("--receipt and --rewards: expected the names of two files")
    if _shadowed() is not None:
        parser.error(f"--sealed: {_shadowed()} was loaded from this folder; start in another folder, or as python -P "
                     "-m mha")
    kernel = None if said.kernel is None else f"{os.path.abspath(where)}:{said.kernel.rpartition(':')[2]}"
    try:
        judge = sealed.Judge(kernel, said.command, layout=said.layout, dtype=said.dtype, level=said.level,
                             has=None if said.has is None else said.has.replace(",", " ").split(), arrays=said.arrays,
                             seed=said.seed if given else secrets.randbits(53), limit=said.timeout)
        judge.ask()
    except (RefusedFunction, TypeError, ValueError, OSError) as reason:
        print(f"mha conform: {shown(str(reason))}", file=sys.stderr)
        return BAD_REQUEST
    found = judge.compare()
    record = receipt.receipt(judge, found, vars(said), given)
    files = {said.receipt: json.dumps(record, indent=1) + "\n", said.rewards: receipt.rewards(found)}
    return _told({path: text for path, text in files.items() if path is not None}, receipt.sentences(record),
                 {"passed": DONE, "failed": NO, "not checked": NOT_CHECKED}[record["verdict"]])
