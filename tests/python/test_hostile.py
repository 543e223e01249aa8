"""Random wrong calls: each gives a result or an exception that names an argument; nothing crashes.

HOSTILE_CALLS says how many, HOSTILE_SEED where they begin. A call that kills the process is found by its number: the
last one in the file that HOSTILE_LOG names.
"""
import os
import re
import subprocess
import sys

import mha
import numpy as np
import pytest
from conftest import ROOT
from mha.core.settings import ROWS

CALLS, SEED = int(os.environ.get("HOSTILE_CALLS", 2000)), int(os.environ.get("HOSTILE_SEED", 0))
LOG = os.environ.get("HOSTILE_LOG")
DTYPES = ["f4", "f4", "f4", "f4", "f8", "f2", "i4", "i8", "u1", "?", ">f4", "c8", "O", "U2", "M8[s]", "V3", "g"]
SIZES = [0, 1, 1, 2, 2, 3, 4, 5, 8]


def odd(r):
    """Something that is no array, or hardly one."""
    things = [None, True, 0, -1, 3, 2**63, -2**70, 1.5, float("nan"), float("inf"), "", "text", "fast", "\0", b"b", (),
              [], [1, 2], [1.5, "a"], {}, {"a": 1}, object(), len, int, range(3), np.float32(2), np.int64(3), 1j,
              np.array(3), np.ma.masked_array([1.0], [True]), memoryview(b"abcd"), [[1, 2], [3]], [None], "top-left"]
    return things[r.integers(len(things))]


def array(r, shape=None, dtype=None):
    """An array of any shape, type and memory order."""
    if shape is None or r.random() < 0.1:
        shape = tuple(r.choice(SIZES, r.integers(0, 6)))
    dtype = DTYPES[r.integers(len(DTYPES))] if dtype is None or r.random() < 0.08 else dtype
    with np.errstate(all="ignore"):
        x = np.asarray(r.standard_normal(shape) * 10.0 ** r.integers(-3, 4))
        x = np.zeros(shape, dtype) if dtype in ("M8[s]", "V3") else x.astype(dtype)
    if x.dtype.kind == "f" and x.size and r.random() < 0.1 and x.dtype.itemsize > 2:
        x.flat[r.integers(x.size)] = [np.nan, np.inf, -np.inf, 1e30][r.integers(4)]
    how = r.integers(10)
    if how == 0:
        x = np.asfortranarray(x)
    elif how == 1 and x.ndim:
        x = np.flip(x, int(r.integers(x.ndim)))
    elif how == 2 and x.ndim:
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    elif how == 3:
        x.flags.writeable = False
    elif how == 4 and x.ndim and x.shape[0]:
        x = np.broadcast_to(x[:1], x.shape)
    elif how == 5 and x.dtype.kind == "f":
        x = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape)  # not aligned
    return x


def maybe(r, right, wrong=0.15):
    """What belongs there, or something else."""
    return right if r.random() > wrong else odd(r) if r.random() < 0.6 else array(r)


def drawn(r, row, B, h, T):
    """A value for a row of the library's table, by its kind."""
    if row.kind == "choice":
        return row.words[r.integers(len(row.words))]
    if row.kind == "view":
        return array(r, (B, T), ["i8", "f4", "?"][r.integers(3)])
    if row.is_array:
        return r.integers(0, 9, h if row.shape == "(h)" else B)
    return {"switch": True, "real": r.standard_normal()}.get(row.kind, int(r.integers(-3, 12)))


def settings(r, B, h, T, S):
    """Some settings, mostly of the right shape: rows of the table, and what speaks for several of them."""
    ints = lambda n: r.integers(-3, 12, max(n + r.integers(-1, 2) * (r.random() < 0.2), 0))
    every = {
        **{name: drawn(r, row, B, h, T) for name, row in ROWS.items()},
        "is_causal": bool(r.integers(2)), "scale": r.random(),
        "window": (int(r.integers(-2, 9)), int(r.integers(-2, 9))), "softcap": abs(r.standard_normal()) * 5,
        "attn_mask": array(r, [(T, S), (B, 1, T, S), (h, T, S), (S,)][r.integers(4)], ["?", "f4", "f8"][r.integers(3)]),
        "key_padding": array(r, (B, S), ["?", "f4"][r.integers(2)]), "key_padding_kind": "keeps",
        "q_segments": array(r, (B, T), "i8"), "k_segments": array(r, (B, S), "i8"),
        "key_lists": array(r, (T, 3), "i8"), "blocks": array(r, (1, 1), "?"), "blocks_kind": "hides",
        "block_size": (T, S),
        "query_padding": array(r, (B, T), "?"), "query_padding_kind": "keeps",
        "lengths": ints(B), "alibi": r.random(h), "sinks": r.standard_normal(h),
        "position_bias": mha.Bias(["buckets", "grid", "other"][r.integers(3)],
                                  array(r, (int(r.integers(0, 9)), h), ["f4", "f8"][r.integers(2)]),
                                  bool(r.integers(2)), int(r.integers(-1, 9)), int(r.integers(-1, 3)), 2),
        "relative": mha.Relative(["distance", "log_buckets", "grid"][r.integers(3)],
                                 *(array(r, (int(r.integers(0, 9)), 4), "f4") if r.integers(2) else None
                                   for _ in range(3)), bool(r.integers(2)), int(r.integers(-1, 9)), 2, 2, r.random()),
        "rope": mha.Rope(["half_split", "interleaved", "other"][r.integers(3)], int(r.integers(-1, 9)),
                         [10000.0, 0.0, -1.0, float("nan")][r.integers(4)],
                         None if r.random() < 0.6 else array(r, (B, T), "i8")),
        "cu_seqlens_q": np.sort(ints(3)), "cu_seqlens_k": np.sort(ints(3)), "enable_gqa": True, "return_lse": True,
        "return_stages": ["weights", "scores", "k_rot", "output"][:r.integers(5)], "out_dtype": "float64",
        "path": ["fast", "blas", "exact"][r.integers(3)], "threads": int(r.integers(-1, 4)),
        "dropout_p": 0.0, "layout": ["BHTD", "BTHD"][r.integers(2)], "window_size": (2, -1),
        "no_such": 1}
    names = r.choice(list(every), r.integers(0, 5), replace=False)
    return {str(n): maybe(r, every[n], 0.12) for n in names}


def one_call(number, folder):
    """A random call; returns what it was."""
    r = np.random.default_rng(number)
    B, h_kv, T, S, d = (int(r.choice(SIZES)) for _ in range(5))
    h = h_kv * int(r.choice([1, 1, 2, 3]))
    dtype = ["f4", "f4", "f4", "f8", "f2"][r.integers(5)]
    lead = (B,) if r.random() < 0.8 else ()
    q, k, v = (maybe(r, array(r, lead + s, dtype), 0.05) for s in ((h, T, d), (h_kv, S, d), (h_kv, S, d)))
    said = settings(r, B if lead else 1, h, T, S)
    what = int(r.integers(14))
    if what in (7, 8):
        P = int(r.choice(SIZES))
        past = {"past_key": array(r, lead + (h_kv, P, d), dtype), "past_value": array(r, lead + (h_kv, P, d), dtype),
                "dtype": ["bfloat16", "float16", "float8_e5m2", "float64", "int8"][r.integers(5)],
                "precision": {("rows", "sums", "scores", "output", "none")[r.integers(5)]: maybe(r, "float16")}}
        said.update({n: maybe(r, past[n]) for n in past if r.random() < 0.4})
    if what < 7:
        call = mha.scaled_dot_product_attention if what < 5 else mha.attention
        for _ in range(2):  # the second time another way is taken
            call(q, k, v, **said)
    elif what == 7:
        mha.testing.assert_attention_close(array(r, lead + (h, T, d), dtype), q, k, v, **said)
    elif what == 8:
        (mha.check if r.random() < 0.7 else mha.diagnose)(maybe(r, array(r, lead + (h, T, d), dtype)), q, k, v, **said)
    elif what < 12:
        sizes = {name: maybe(r, int(r.choice([0, 1, 2, 4, 8, 16])), 0.05) for name in (
            "kv_heads", "d_k", "d_v", "d_q", "d_kin", "d_vin", "d_out", "seed") if r.random() < 0.15}
        layer = mha.MultiHeadAttention(maybe(r, 8, 0.03), maybe(r, 2, 0.03), **sizes,
                                       **{n: maybe(r, True) for n in ("bias", "sinks", "bias_kv") if r.random() < 0.1})
        x = maybe(r, array(r, (B, T, 8), dtype), 0.05)
        if r.random() < 0.4:
            said["cache"] = maybe(r, mha.Cache(*(maybe(r, n, 0.05) for n in (B, 2, 4, 9))))
        if r.random() < 0.3:
            layer.set(maybe(r, "W_Q"), maybe(r, array(r, (8, 8), "f4"), 0.3))
        if r.random() < 0.5:
            said = {n: v for n, v in said.items() if n not in ("return_lse", "return_stages", "is_causal", "attn_mask")}
        more = [array(r, (B, S, 8), dtype)] if r.random() < 0.4 else []
        for _ in range(2):
            layer(x, *more, **said)
    elif what == 12:
        path = os.path.join(folder, "x" + [".safetensors", ".npy", ".txt", ""][r.integers(4)])
        name = ["a", 3, None, "\0", ""][r.choice(5, p=[0.8] + 4 * [0.05])]
        mha.save(maybe(r, path), maybe(r, {name: maybe(r, array(r), 0.1)}), maybe(r, None))
        dict(mha.load(maybe(r, path)))
        mha.Trace.load(path)._repr_html_()
    else:
        [mha.count, mha.load, mha.check, mha.presets, mha.Model.from_preset, mha.Model.from_config][r.integers(6)](
            maybe(r, [{"a": array(r)}, {"model_type": "gpt2", "n_head": maybe(r, 2)}, "gpt2"][r.integers(3)], 0.4))


# The message begins with the argument (or the file) that it is about, or is Python's own about one, or the checker's.
NAMED = re.compile(r"""^[\w./ -]+(\[.*?\])?: |argument:? '|positional argument|^\w+ differs""", re.S)


def test_hostile_calls(tmp_path):
    mha.testing.save_failures(str(tmp_path / "failed"))
    outcomes = {"result": 0}
    log = open(LOG, "w") if LOG else None
    for number in range(SEED, SEED + CALLS):
        if log:
            log.seek(0)
            log.write(f"{number}\n")
            log.flush()
        try:
            one_call(number, str(tmp_path))
            outcomes["result"] += 1
        except (TypeError, ValueError, LookupError, OSError, MemoryError, AssertionError) as reason:
            assert NAMED.search(str(reason)), f"call {number}: {type(reason).__name__}: {reason}"
            kind = type(reason).__name__
            outcomes[kind] = outcomes.get(kind, 0) + 1
        except Exception as reason:
            raise AssertionError(f"call {number} raises {type(reason).__name__}: {reason}") from reason
    print(outcomes)
    assert outcomes["result"] > CALLS / 20 and outcomes["TypeError"] > CALLS / 20
    mha.testing.save_failures(None)


CYCLES = """
import gc, mha
class Loop: pass
gc.disable()
for make in (lambda: mha.Model.from_preset("gpt2"), lambda: mha.Cache(1, 2, 4, 8).continued(2, 3),
             lambda: mha.MultiHeadAttention.from_file("weights/lookup/model.safetensors", n_heads=6)):
    for _ in range(20):
        loop = Loop()
        loop.made, loop.itself = make(), loop
        del loop
        gc.collect()
print("whole")
"""


def test_what_is_collected_as_a_cycle_is_destroyed_behind_what_needs_it():
    run = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0 and run.stdout == "whole\n", run.stderr


def test_what_is_closed_lives_as_long_as_it_is_needed():
    trunk = mha.Cache(1, 2, 4, 8)
    branch = trunk.continued(2, 3)
    trunk.handle.close()
    with pytest.raises(ValueError, match="cache: expected an open cache"):
        len(trunk)
    assert len(branch) == 0 and branch.keys.shape == (2, 2, 0, 4)
    branch.handle.close()
    branch.handle.close()
