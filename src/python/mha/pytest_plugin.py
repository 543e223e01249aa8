"""A plugin of pytest: --mha-save-failures says where failed assertions of mha.testing save their cases, --mha-conform
puts the conformance suite to a kernel, a test for each test case. The kernel runs in a process of its own."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Optional, Union

import pytest

if TYPE_CHECKING:
    import pathlib

    from _pytest._code.code import TerminalRepr

    from .conformance.worker import Worker

_SAVE, _CONFORM = "--mha-save-failures", "--mha-conform"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options; the library is not loaded for them."""
    group = parser.getgroup("mha")
    group.addoption(_SAVE, metavar="DIR", default=None,
                    help="save the case of each failed assert_attention_close in DIR")
    group.addoption(_CONFORM, metavar="FILE.py:FUNCTION", action="append", default=[],
                    help="ask a kernel the test cases of the conformance suite, each a test; may be repeated")
    group.addoption("--mha-conform-level", metavar="LEVEL", default="smoke",
                    help="how much is asked: smoke, full or large [smoke]")
    group.addoption("--mha-conform-has", metavar="WORDS", default=None,
                    help="what the kernel has, as causal,gqa,window: an exception is then a failure, without it a skip "
                    "where any word is needed")
    group.addoption("--mha-conform-backward", metavar="FUNCTION", default=None,
                    help="its gradients are checked, too: a function of the kernel's file, or FILE.py:FUNCTION, "
                    "backward(q, k, v, output, do, ...), that returns dq, dk and dv [of torch and jax autograd]")
    group.addoption("--mha-conform-dtype", metavar="TYPE", default="float32", help="what it computes in [float32]")
    group.addoption("--mha-conform-arrays", metavar="KIND", default="numpy",
                    help="what it is given: numpy, torch or jax [numpy]")
    group.addoption("--mha-conform-device", metavar="NAME", help="where its arrays are, as cuda:0")
    group.addoption("--mha-conform-layout", metavar="AXES", default="BHTD", help="the axes of its arrays [BHTD]")


def pytest_configure(config: pytest.Config) -> None:
    """Hands the folder on."""
    folder = config.getoption(_SAVE)
    if folder:
        from . import testing

        testing.save_failures(folder)


class _Wrong(Exception):
    """A result that is wrong, in one line."""


class CaseItem(pytest.Item):
    """One test case of the suite to one kernel."""

    def __init__(self, *, worker: Worker, case: str, name: str, parent: pytest.Session, nodeid: str) -> None:
        super().__init__(name, parent, nodeid=nodeid)
        self.worker, self.case = worker, case

    def runtest(self) -> None:
        """Asks, and checks the result."""
        from .conformance.command import tested
        from .conformance.worker import Ended

        try:
            outcome, why = self.worker.call(tested, self.case)
        except Ended as reason:
            raise _Wrong(str(reason)) from reason
        if outcome == "refused":
            pytest.skip(why)
        if outcome == "failed":
            raise _Wrong(why)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None
                     ) -> Union[str, TerminalRepr]:
        """The line of a wrong result, without a traceback."""
        return str(excinfo.value) if isinstance(excinfo.value, _Wrong) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[pathlib.Path, Optional[int], str]:
        """Its location in the report."""
        return self.path, None, self.name


def _items(session: pytest.Session, target: str) -> Iterator[CaseItem]:
    from .conformance.command import opened
    from .conformance.suite import on_device
    from .conformance.worker import Ended, RefusedFunction, Worker

    said = {word: session.config.getoption(f"{_CONFORM}-{word}")
            for word in ("has", "backward", "layout", "dtype", "level", "arrays")}
    said["arrays"] = on_device(said["arrays"], session.config.getoption(f"{_CONFORM}-device"))
    worker = Worker()
    session.config.add_cleanup(worker.__exit__)
    try:
        cases = worker.call(opened, {"kernel": target, **said})
    except (Ended, RefusedFunction) as reason:
        raise pytest.UsageError(f"{_CONFORM}: {reason}") from reason
    for name in cases:
        yield CaseItem.from_parent(session, name=f"{target}[{name}]", nodeid=f"{target}[{name}]", worker=worker,
                                       case=name)


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Adds the test cases after the tests that were found."""
    for target in session.config.getoption(_CONFORM):
        items.extend(_items(session, target))
