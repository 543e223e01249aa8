"""A process for a kernel: one that ends its process does not end the process whose exit code counts."""
from __future__ import annotations

import importlib
import json
import os
import secrets
import subprocess
import sys
from typing import Callable, TypeVar, cast

Result = TypeVar("Result")
_START = "import sys; sys.path[:], sys.argv[1:] = sys.argv[1:], []; from mha.conformance import worker; worker.serve()"


class RefusedFunction(Exception):
    """The worker could not do what was asked, and says why in one line."""


class Ended(Exception):
    """The worker ended before it replied."""


class Worker:
    """A Python process that calls functions of this package, one at a time. Its standard output is this process's
    standard error: prints of a kernel do not mix with replies."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", _START, *sys.path], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True, encoding="ascii")

    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """What function(*arguments) returns in the worker. Arguments and result are of JSON. A reply counts if it is
        whole and repeats the number that the request was given."""
        number = secrets.token_hex(16)
        request = [number, function.__module__, function.__name__, arguments]
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            found, result, refused = json.loads(self._process.stdout.readline())
        except (OSError, TypeError, ValueError):  # no line, or one that is no reply
            found = None
        if found != number:
            code = self.close()
            end = f"exit code {code}" if code >= 0 else f"signal {-code}"
            raise Ended(f"the kernel ended the process ({end}) before its results were compared")
        if refused is not None:
            raise RefusedFunction(refused)
        return cast("Result", result)

    def close(self) -> int:
        """Waits until the worker has ended. Returns its exit code, which is no verdict: a kernel can choose it."""
        self._process.communicate()
        return self._process.returncode

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve() -> None:
    """The worker: replies to requests until there are none. Processes that a kernel forks do not keep the pipe of
    replies, so its end is seen."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", encoding="ascii")
    os.register_at_fork(after_in_child=replies.close)
    with open(os.devnull, encoding="ascii") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    for line in requests:
        number, module, name, arguments = json.loads(line)
        result, refused = None, None
        try:
            result = getattr(importlib.import_module(module), name)(*arguments)
        except RefusedFunction as reason:
            refused = str(reason)
        print(json.dumps([number, result, refused]), file=replies, flush=True)
