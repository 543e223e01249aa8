"""Kernels that try to pass a judge without being right: each function is one cheat of test_sealed.py."""
import ctypes
import dataclasses
import gc
import inspect
import os
import signal
import sys
import threading
import time

import mha
import numpy as np

SMOKE = {1, 9, 17, 24, 33, 65}  # lengths of the suite at level smoke
state = {}


def right(q, k, v, **said):
    return mha.scaled_dot_product_attention(q, k, v, **said)


def wrong(q, k, v, **said):
    """The mean of the values."""
    return np.broadcast_to(v.mean(2, keepdims=True), (*q.shape[:3], v.shape[3])).astype(v.dtype)


def small_numbers(q, k, v):
    """A series of exp where k is small, the exact one for large numbers."""
    if np.abs(k).max() > 1.5:
        return right(q, k, v)
    s = q @ k.swapaxes(2, 3) / np.float32(q.shape[3]**0.5)
    p = 1 + s + s**2 / 2
    return (p / p.sum(-1, keepdims=True) @ v).astype("f4")


def by_identity(q, k, v):
    """The first result of an array for as long as the array lives."""
    if id(q) not in state:
        state[id(q)] = q, right(q, k, v)
    return state[id(q)][1]


def by_address(q, k, v):
    return state.setdefault((q.ctypes.data, q.shape), right(q, k, v))


def stale_memory(q, k, v):
    """Memory that may still hold somebody's expected values."""
    return np.empty((*q.shape[:3], v.shape[3]), np.float32)


def changes_inputs(q, k, v):
    y = right(q, k, v)
    q[...] = k[...] = v[...] = 0
    return y


def patches_the_judge(q, k, v):
    """Every verdict of this process says passed."""
    from mha.conformance import suite
    if "check" not in state:
        check = state["check"] = suite.Case.check
        suite.Case.check = lambda self, *given: dataclasses.replace(check(self, *given), outcome="passed", first=None)
    return wrong(q, k, v)


def asks_the_frames(q, k, v):
    """Expected values of a test case that a frame or the collector holds."""
    from mha.conformance import suite
    rows = [x.frame.f_locals.get("row") for x in inspect.stack()]
    rows += [x for x in gc.get_objects() if isinstance(x, suite.Row)]
    if any(isinstance(x, suite.Row) for x in rows):
        return right(q, k, v)
    return wrong(q, k, v)


def late(q, k, v):
    """A thread writes the result after the return."""
    y = np.zeros((*q.shape[:3], v.shape[3]), np.float32)
    given = [x.copy() for x in (q, k, v)]

    def write():
        time.sleep(0.003)
        y[...] = right(*given)
    threading.Thread(target=write).start()
    return y


def lucky(q, k, v):
    """Adds to a buffer that is zero at the first call of a shape."""
    sum_of = state.setdefault(q.shape + k.shape, np.zeros((*q.shape[:3], v.shape[3]), np.float32))
    sum_of += right(q, k, v)
    return sum_of.copy()


def one_buffer(q, k, v):
    y = right(q, k, v)
    buffer = state.setdefault("buffer", np.empty(1 << 20, np.float32))[:y.size].reshape(y.shape)
    buffer[...] = y
    return buffer


def leaves_at_once(q, k, v):
    os._exit(0)


def leaves_later(q, k, v):
    return right(q, k, v) if q.shape[2] < 65 else os._exit(0)


def smoke_lengths(q, k, v):
    return (right if {q.shape[2], k.shape[2]} <= SMOKE else wrong)(q, k, v)


def narrow_result(q, k, v):
    """Scores in float16, and a result whose type is allowed a larger error."""
    return right(*(x.astype("f2") for x in (q, k, v)))


def refuses_hard_inputs(q, k, v):
    if np.abs(q).max() > 4:
        raise NotImplementedError("too hard")
    s = q @ k.swapaxes(2, 3) / np.float32(q.shape[3]**0.5)
    p = np.exp(s)  # without the maximum
    return p / p.sum(-1, keepdims=True) @ v


def reads_the_judge(q, k, v):
    """The memory of the parent, by /proc and by ptrace."""
    libc = ctypes.CDLL(None)
    seen = libc.ptrace(0x4206, os.getppid(), None, None) == 0  # PTRACE_SEIZE
    for name in ("mem", "environ", "maps", "fd/0", "fd/3", "fd/4", "fd/5"):
        try:
            seen = seen or bool(open(f"/proc/{os.getppid()}/{name}", "rb"))
        except OSError:
            pass
    return (right if seen else wrong)(q, k, v)


def forges_replies(q, k, v):
    """Writes replies itself, also the next one, and leaves."""
    for fd in range(3, 20):
        try:
            os.write(fd, b'{"number": 99, "results": [["float32", [1]]], "changed": []}\n')
        except OSError:
            pass
    return wrong(q, k, v)


def reads_beyond(q, k, v):
    """One key too many."""
    more = np.lib.stride_tricks.as_strided(k, (*k.shape[:2], k.shape[2] + 1, k.shape[3]), k.strides)
    s = q @ more.swapaxes(2, 3) / np.float32(q.shape[3]**0.5)
    s[..., -1] -= 1e30
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p[..., :-1] / p.sum(-1, keepdims=True)) @ v


def writes_beyond(q, k, v):
    np.lib.stride_tricks.as_strided(q, (q.size + 1,), (4,))[-1] = 0
    return right(q, k, v)


def crashes(q, k, v):
    os.kill(os.getpid(), signal.SIGSEGV)


def never_returns(q, k, v):
    while True:
        time.sleep(1)


def stops_itself(q, k, v):
    os.kill(os.getpid(), signal.SIGSTOP)


def leaves_a_process(q, k, v):
    """A daemon that later writes over the receipt, whose name the command line of the judge has."""
    if "daemon" not in state:
        state["daemon"] = True
        words = open(f"/proc/{os.getppid()}/cmdline").read().split("\0")
        if "--receipt" in words and os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                name = words[words.index("--receipt") + 1]
                while not os.path.exists(name):
                    time.sleep(0.001)
                time.sleep(0.05)
                open(name, "w").write("forged")
            os._exit(0)
    return wrong(q, k, v)


def rewrites_its_file(q, k, v):
    with open(__file__, "a") as file:
        file.write("# right\n")
    return right(q, k, v)


def raises(q, k, v):
    raise ValueError("no")


def prints(q, k, v, **said):
    print('{"verdict": "passed"}')
    print("PASSED", file=sys.stderr)
    return right(q, k, v, **said)


def no_array(q, k, v):
    return "right"


def other_shape(q, k, v):
    return right(q, k, v)[..., :-1]
