"""Processes of a sealed kernel: start, time limit, captured output, end. A kernel's process has this user's rights."""
from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Mapping, Optional, Sequence

from ..core import arrays as a
from . import arena
from .worker import RefusedFunction

_libc = ctypes.CDLL(None)
_DUMPABLE, _SUBREAPER, _NO_NEW_PRIVILEGES, _DROP = 4, 36, 38, 24  # of prctl
# Capabilities of root that read or change other processes: modules, raw memory, ptrace, admin, perfmon, bpf, restore
_CAPABILITIES = (16, 17, 19, 21, 38, 39, 40)
_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "MHA_LIBRARY",
                "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
_START = "import sys; sys.path[:], sys.argv[1:] = sys.argv[1:], []; from mha.conformance import inmate; inmate.serve()"
_START_LIMIT = 60.0  # seconds for the start of a process, at least
_LINE = 1 << 20  # bytes of a reply, at most
_CAPTURED = 1 << 14  # bytes of output that are reported


class Broken(Exception):
    """A call without a result: `outcome` names the reason."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def close_off() -> None:
    """Hide this process's memory from other processes of the user, and adopt orphans of the kernel's processes."""
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)


def _confine() -> None:
    """In a new process, before its program begins: no way to more rights, and none to other processes' memory."""
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    for capability in _CAPABILITIES:
        _libc.prctl(_DROP, capability, 0, 0, 0)


def _children() -> set[int]:
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="latin-1") as file:  # it may have ended
            if file.read().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(int(name))
    return found


class Enclosure:
    """Kernel processes of a run: their folder, their captured output, and their end."""

    def __init__(self, limit: float) -> None:
        self.limit, self.folder = limit, tempfile.mkdtemp(prefix="mha-")
        self.captured, self._others = bytearray(), _children()
        self._threads: list[threading.Thread] = []
        self._environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}

    def start(self, command: Sequence[str], fds: Sequence[int] = (), piped: bool = False) -> subprocess.Popen[bytes]:
        """A process in a session of its own."""
        process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE if piped else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if piped else subprocess.STDOUT, pass_fds=fds, cwd=self.folder,
            env=self._environment, start_new_session=True, preexec_fn=_confine)
        output = process.stderr if piped else process.stdout
        self._threads.append(threading.Thread(target=self._capture, args=(output,), daemon=True))
        self._threads[-1].start()
        return process

    def _capture(self, file: IO[bytes]) -> None:
        while data := os.read(file.fileno(), 1 << 16):
            self.captured += data[:_CAPTURED - len(self.captured)]

    @staticmethod
    def wait(process: subprocess.Popen[bytes], limit: float, reply: Optional[int] = None) -> bytes:
        """Wait for a line from `reply`, or for the end of the process. Broken("timeout") after `limit` seconds."""
        pidfd, line, until = os.pidfd_open(process.pid), b"", time.monotonic() + limit
        try:
            while not line.endswith(b"\n") and len(line) < _LINE:
                ready, _, _ = select.select([pidfd] if reply is None else [reply, pidfd], [], [],
                                            max(0.0, until - time.monotonic()))
                if not ready:
                    raise Broken("timeout", f"no result after {limit:g} s")
                data = os.read(reply, 1 << 16) if reply is not None and reply in ready else b""
                if not data and (reply is None or pidfd in ready):
                    break
                if not data:  # the pipe is closed, the process is about to end
                    reply = None
                line += data
        finally:
            os.close(pidfd)
        return line

    def end(self) -> None:
        """End all processes of the kernel, also those that left its session."""
        for _ in range(100):
            left = _children() - self._others
            for pid in left:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            if not left:
                break
        for thread in self._threads:  # they end with the last process that has their pipe
            thread.join(1)
        self._threads = []

    def close(self) -> None:
        """End everything and remove the folder."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def ended(process: subprocess.Popen[bytes]) -> Broken:
    """The end of a process before its result."""
    code = process.wait()
    if code < 0:
        return Broken("crash", f"ended by signal {-code} ({signal.Signals(-code).name})")
    return Broken("exit", f"ended the process with exit code {code}")


class FunctionRunner:
    """A Python function, in a process that stays for many calls."""

    def __init__(self, enclosure: Enclosure, kernel: str, arrays: str) -> None:
        self._enclosure, self._said = enclosure, {"kernel": kernel, "arrays": arrays}
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._fd = arena.open_memory()
        self.memory = arena.mapped(self._fd)
        self.number = 0  # of the last request
        self.late: set[int] = set()  # numbers of requests whose results changed after the reply

    def _begin(self) -> None:
        """Start the process; the error RefusedFunction tells why it has no such function."""
        paths = [os.path.realpath(x) for x in sys.path if x and os.path.realpath(x) != os.getcwd()]
        self._process = self._enclosure.start([sys.executable, "-u", "-c", _START, *paths], [self._fd], piped=True)
        reply = self._exchange({**self._said, "memory": self._fd}, max(_START_LIMIT, self._enclosure.limit))
        if "refused" in reply:
            raise RefusedFunction(str(reply["refused"]))

    def _exchange(self, request: Mapping[str, a.Json], limit: float) -> dict[str, a.Json]:
        """The reply to a request. After a fault the process is ended."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        self.number += 1
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps({**request, "number": self.number}).encode() + b"\n")
                process.stdin.flush()
            line = self._enclosure.wait(process, limit, process.stdout.fileno())
            if not line:
                raise ended(process)
            reply = json.loads(line.partition(b"\n")[0])
            if not isinstance(reply, dict) or reply.get("number") != self.number:
                raise Broken("forged-reply", "replied to another call")
        except (Broken, ValueError, RecursionError) as reason:
            self._stop()
            raise reason if isinstance(reason, Broken) else Broken("forged-reply", "replied with garbage") from None
        if isinstance(reply.get("changed"), list):
            self.late.update(x for x in reply["changed"] if isinstance(x, int))
        return reply

    def ask(self, image: arena.Image, slot: int) -> a.Json:
        """The results that the process says it wrote for a call; starts a process if there is none."""
        begin = slot * arena.REGION
        self.memory[begin:begin + len(image.bytes)] = bytes(image.bytes)
        if self._process is None:
            self._begin()
        reply = self._exchange({"slot": slot, "arrays": image.arrays, "call": base64.b64encode(image.call).decode()},
                               self._enclosure.limit)
        if "outcome" in reply:
            known = reply["outcome"] in ("exception", "out-of-memory")  # what a kernel may say of itself
            raise Broken(reply["outcome"] if known else "malformed", str(reply.get("reason")))
        return reply.get("results")

    def finish(self) -> None:
        """Ask for late changes; end the process."""
        if self._process is not None:
            with contextlib.suppress(Broken):
                self._exchange({}, self._enclosure.limit)
        self._stop()

    def _stop(self) -> None:
        """End the process with all of its descendants."""
        self._enclosure.end()
        if self._process is not None:
            for file in (self._process.stdin, self._process.stdout):
                if file is not None:
                    file.close()
            self._process.wait()
            self._process = None


def run_command(enclosure: Enclosure, command: str, names: Mapping[str, str]) -> None:
    """Run a command that reads and writes files: {in} and {out} are their names. Broken tells how it failed."""
    words = [word.format_map(names) for word in shlex.split(command)]
    try:
        process = enclosure.start(words)
        enclosure.wait(process, enclosure.limit)
        if process.wait() != 0:
            raise ended(process)
    except OSError as reason:
        raise Broken("exit", f"{words[0]}: {reason.strerror}") from None
    finally:
        enclosure.end()
