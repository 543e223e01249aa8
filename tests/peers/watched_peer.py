"""Tiny random models of the types of transformers: watched without one false alarm, and the same numbers on mha-exact.

    PYTHONPATH=build/python:tests/peers python3 tests/peers/watched_peer.py [--exact] [--packed] [--rows] [--all]
                                                                         [--drawn N] [--json FILE] [TYPE ...]

Each type whose default configuration becomes small (types_drawn.py) is watched in float32, bfloat16 and float16 with
eager attention and, where it has that, with sdpa. With --exact it is run with eager attention in float64, and again on
mha-exact: outputs must be the same to 1e-12. With --packed batch rows hold several sequences. --rows: the models of
layers_drawn.py with the configurations that it has. Without --all and names: only the types of layers_drawn.py, which
`make test-peers` takes; --drawn: N of them. --table FILES: what was written with --json as the table of
tests/README.md. Exit code 1 when there is an alarm or a difference; what is refused by name, or not heard, is none.
"""
import argparse
import collections
import inspect
import json
import os
import random
import signal
import sys
import warnings

warnings.simplefilter("ignore")
EXACT, PACKED, ROWS = (flag in sys.argv for flag in ("--exact", "--packed", "--rows"))
if EXACT:
    import layers_peer  # noqa: F401 (float32 inside of models becomes float64)
import torch  # noqa: E402
import transformers  # noqa: E402

import mha  # noqa: E402
import layers_drawn  # noqa: E402
import types_drawn  # noqa: E402
from layers_drawn import MODELS, inputs_of  # noqa: E402

torch.set_num_threads(1)
torch.set_grad_enabled(False)
transformers.logging.set_verbosity_error()
ALLOWED, SECONDS = 1e-12, 60
KINDS = ("not checked", "unheard", "has no", "does not run")
RUNS = [(name, dtype) for name in ("eager", "sdpa") for dtype in ("float32", "bfloat16", "float16")]


def tensors(output):
    """The floating-point results of a model, but for its caches."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    if hasattr(output, "items"):
        return [x for key, value in output.items() if "past" not in key and "cache" not in key for x in tensors(value)]
    return [x for value in output for x in tensors(value)] if isinstance(output, (list, tuple)) else []


def called(model):
    """Runs a model on what it takes: all inputs, or only those of text."""
    try:
        given, _ = inputs_of(model, model.config)
        dtype = next(model.parameters()).dtype
        given = {name: x.to(dtype) if x.is_floating_point() else x for name, x in given.items()}
        torch.manual_seed(1)
        return model(**given), given
    except Exception:  # noqa: BLE001: images want tokens of their own in the text
        ids = torch.randint(3, 20, (2, 7), generator=torch.Generator().manual_seed(2))
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        given["attention_mask"][1, 5:] = 0
        if "decoder_input_ids" in inspect.signature(model.forward).parameters:
            given["decoder_input_ids"] = ids[:, :5]
        torch.manual_seed(1)
        return model(**given), given


def packed(model):
    """Runs a model on two texts in each batch row, which positions that begin again tell apart."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise ValueError("it takes no position_ids")
    ids = torch.randint(3, 20, (2, 13), generator=torch.Generator().manual_seed(2))
    positions = torch.cat([torch.arange(n) for n in (8, 5, 6, 7)]).reshape(2, 13)
    return model(input_ids=ids, position_ids=positions, use_cache=False)


def exact(model_type):
    """How far mha-exact is from eager attention, relatively; the reason where that cannot be said."""
    model = types_drawn.model_of(model_type, "eager", torch.float64)
    output, given = called(model)
    theirs = tensors(output)
    if any(not torch.equal(x, y) for x, y in zip(theirs, tensors(called(model)[0]))):
        return "does not run: not the same numbers twice"
    model.set_attn_implementation("mha-exact")
    if model.config._attn_implementation != "mha-exact":
        return "unheard: it keeps its own attention"
    ours, kept = tensors(called(model)[0]), given.get("attention_mask")
    off = 0.0
    for x, y in zip(theirs, ours):
        apart = (x - y).abs()
        if kept is not None and x.ndim == 3 and x.shape[:2] == kept.shape:
            apart = apart[kept == 1]
        off = max(off, float(apart.max() / x.abs().max().clamp(min=1e-30)))
    return off


def watched(model_type, name, dtype):
    """passed, unheard, or what is wrong."""
    try:
        model = (layers_drawn if ROWS else types_drawn).model_of(model_type, name, getattr(torch, dtype))
    except ValueError as reason:
        if "does not support" in str(reason):
            return "has no " + name
        raise
    with mha.watch(model) as w:
        packed(model) if PACKED else called(model)
    if not w.layers:
        return "unheard"
    if w.status == "not checked":
        return "not checked: " + "; ".join(f"{reason} ({count} layers)" for reason, count in collections.Counter(
            reason for reasons in w.unchecked.values() for reason in reasons).items())
    return "passed" if w.passed else f"ALARM {str(w.first)[:400]}"


def attempt(what, *args):
    """What it gives, or why it could not be done."""
    def late(*_):
        raise TimeoutError(f"more than {SECONDS} s")
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        return what(*args)
    except Exception as reason:  # noqa: BLE001: a type that does not run is reported, not hidden
        return f"does not run: {type(reason).__name__}: {str(reason)[:100]}"
    finally:
        signal.alarm(0)


def table(files):
    """Lines of tests/README.md from the results of --json."""
    rows, types = {}, {}
    for file in files:
        for model_type, found in json.load(open(file)).items():
            types.setdefault(model_type, {}).update(found)
    for found in types.values():
        for run, result in found.items():
            kind = "passed" if result == "passed" or isinstance(result, float) and result <= ALLOWED else next(
                (kind for kind in KINDS if str(result).startswith(kind)), "wrong")
            rows.setdefault(run, {}).setdefault(kind, []).append(result)
    kinds = ("passed", "wrong", *KINDS)
    print("| run | " + " | ".join(kinds) + " |\n|---|" + "---:|" * len(kinds))
    for run in sorted(rows):
        print(f"| {run} | " + " | ".join(str(len(rows[run].get(kind, []))) for kind in kinds) + " |")


def main():
    parser = argparse.ArgumentParser()
    for flag in ("--exact", "--packed", "--rows", "--all"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--drawn", type=int, metavar="N", help="N of the types, which $PEER_SEED draws")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--runs", default="eager,sdpa,float32,bfloat16,float16", help="implementations and types")
    parser.add_argument("--table", nargs="+", metavar="FILE")
    parser.add_argument("types", nargs="*")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    usual = [name for name in types_drawn.TYPES if name in {row[0] for row in MODELS.values()}]
    mha.transformers.register()
    wrong, results = [], {}
    everything = [name for name in types_drawn.TYPES if types_drawn.dispatches(name)]
    types = args.types or (list(MODELS) if ROWS else everything if args.all else usual)
    if args.drawn:
        types = random.Random(os.environ.get("PEER_SEED", 0)).sample(types, args.drawn)
    for model_type in types:
        found = results.setdefault(model_type, {})
        if EXACT:
            found["mha-exact, float64"] = off = attempt(exact, model_type)
            bad = isinstance(off, float) and not off <= ALLOWED
        else:
            for name, dtype in RUNS:
                if {name, dtype} <= set(args.runs.split(",")) and "does not run" not in str(found.values()):
                    found[f"{'packed, ' * PACKED}{name}, {dtype}"] = attempt(watched, model_type, name, dtype)
            bad = any(str(result).startswith("ALARM") for result in found.values())
        wrong += [model_type] * bad
        told = "; ".join(f"{run} {result}" for run, result in found.items())
        print(f"{'WRONG ' if bad else ''}{model_type}: {told}", flush=True)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump(results, file, indent=1)
    print(f"{len(wrong)} of {len(results)} types wrong with transformers {transformers.__version__} {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
