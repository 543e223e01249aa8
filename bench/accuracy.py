"""Measures how far results are from float64: each path of this library, beside its bound and beside other libraries.

    make accuracy           writes bench/ACCURACY.md and a plot of error against length and width

Attention with Q, K and V given, 64 queries in 4 heads of 64, 16 to 16384 keys; whole layers, d_model 64 to 2048; both
with keys and values in caches of fewer bits, and in products of BF16. Three seeds each. Errors are counted in ULP of
the output scale: the distance of two neighbouring floats at the largest element of the exact output.
"""
import argparse
import datetime
import math
import os
import sys
from ctypes import byref, c_char_p, c_double, c_size_t, c_void_p

import numpy as np

import plot
from contenders import CONTENDERS
from work import Absent, Shim, Work

LENGTHS = [16, 64, 256, 1024, 4096, 16384]
WIDTHS = [64, 128, 256, 512, 1024, 2048]
PATHS = ["exact", "blas", "fast"]
OTHERS = ["openblas", "onednn", "ort-mha", "ort-attn", "torch"]
B, T_Q, H, D = 1, 64, 4, 64
SEEDS = 3
TWICE = 2  # what ours may be, in errors of the best other
NOISE = 2  # ULP under which nothing is told apart: a result that is rounded once is already half of one off


def normal(r, n):
    """Everything normal with variance 1, scores too."""
    return r.standard_normal((B, T_Q, H, D)), r.standard_normal((B, n, H, D)), r.standard_normal((B, n, H, D))


def large_logits(r, n):
    """Scores with standard deviation 30: a few keys take it all, and rounding a score moves their weights."""
    q, k, v = normal(r, n)
    return 30 * q, k, v


def long_sums(r, n):
    """Nearly equal weights on values that are all about 1: the whole length goes into every sum."""
    q, k, v = normal(r, n)
    return 0.01 * q, k, 1 + 0.1 * v


def close_calls(r, n):
    """Values of 1000 that cancel: each key twice, with opposite values but for 1."""
    q, k, v = normal(r, n)
    half = n // 2
    k[:, half:2 * half] = k[:, :half]
    v = 1000 * v
    v[:, half:2 * half] = 1 - v[:, :half]
    return q, k, v


KINDS = {"normal": normal, "large logits": large_logits, "long sums": long_sums, "cancelling values": close_calls}


def layer_inputs(r, n):
    """Projections, attention and output: x normal with variance 1, weights so that everything projected is, too; 64
    tokens, heads of 64."""
    return [r.standard_normal((B, T_Q, n))] + [r.standard_normal((n, n)) / math.sqrt(n) for _ in range(4)]


LAYERS = "whole layers"
DRAWS = {**KINDS, LAYERS: layer_inputs}
# The variable of the rows of each table, and its values.
GROWS = {**{kind: ("keys", LENGTHS) for kind in KINDS}, LAYERS: ("d_model", WIDTHS)}


# Caches of these types, on the fast path; the first rounds nothing. The narrowest is also held beside the exact path.
CACHES = ["F32", "F16", "BF16", "I8"]
NARROWEST = CACHES[-1]
BESIDE = f"{NARROWEST}, arithmetic"
CACHED = {f"{kind}, in a cache": kind for kind in ("normal", "large logits", LAYERS)}
for title, kind in CACHED.items():
    GROWS[title] = GROWS[kind]


# Products of BF16, of inputs and weights that are BF16 numbers, so that no side is charged with rounding them.
LOW = ["exact", "blas", "fast", "torch-bf16"]
LOW_SEEDS = 5
LOW_KINDS = ("normal", "large logits", "long sums", LAYERS)


class Given(Work):
    """One input as the contenders of bench/peers.py take it: Q, K and V, or x and the weights of a layer."""

    def __init__(self, part, arrays):
        self.part, self.folder = part, None
        if part == "core":
            names, n, self.h = ["query", "key", "value"], arrays[1].shape[1], H
            arrays = [x.reshape(B, -1, H * D) for x in arrays]
        else:
            names, n, self.h = ["query", "W_Q", "W_K", "W_V", "W_O"], T_Q, arrays[0].shape[-1] // D
        self.arrays = dict(zip(names, arrays))
        self.B, self.T_q, self.T_k, self.h_kv, self.d_k, self.d_model = B, T_Q, n, self.h, D, self.h * D
        self.shape = f"{B},{T_Q},{n},{self.d_model},{self.h}"
        self.causal = self.bias = self.decodes = False
        self.crosses = T_Q != n

    def __getitem__(self, name):
        return self.arrays.get(name)


def attention_exactly(q, k, v):
    """The textbook in float64, on (B, T, h, d)."""
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(D)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3)


def exactly(part, arrays):
    if part == "core":
        return attention_exactly(*arrays).reshape(-1)
    x, W_Q, W_K, W_V, W_O = (a.astype(np.float64) for a in arrays)
    heads = attention_exactly(*((x @ W).reshape(B, T_Q, -1, D) for W in (W_Q, W_K, W_V)))
    return (heads.reshape(B, T_Q, -1) @ W_O).reshape(-1)


def ours(shim, path, part, arrays, cache=None, bounded=False, precision=None):
    """The output, and its bound if asked for; keys and values in a cache of a type, or in none; in a precision."""
    output, bound = np.zeros(arrays[0].size), c_double()
    last = c_void_p(output.ctypes.data), byref(bound) if bounded else None
    pointers = [c_void_p(x.ctypes.data) for x in arrays]
    names = [c_char_p(name and name.encode()) for name in (path, cache, precision)]
    if part == "core":
        failed = shim.lib.shim_attend(*names, (c_size_t * 5)(B, T_Q, arrays[1].shape[1], H, D), *pointers, *last)
    else:
        width = arrays[0].shape[-1]
        failed = shim.lib.shim_layer(*names, (c_size_t * 4)(B, T_Q, width, width // D), pointers[0],
                                     (c_void_p * 4)(*(p.value for p in pointers[1:])), *last)
    if failed:
        sys.exit(f"accuracy: path {path} cannot run")
    return output, bound.value


def measure(libraries):
    """Errors by (kind, length or width, who), "bound" among them, in ULP of the output scale; who took part, and who
    could not."""
    shim, others, skipped, errors = Shim(libraries), {}, {}, {}
    for name in OTHERS:
        try:
            others[name] = CONTENDERS[name][1](1, libraries)
        except Absent as why:
            skipped[name] = str(why)
    for kind, n, seed in [(kind, n, seed) for kind in DRAWS for n in GROWS[kind][1] for seed in range(SEEDS)]:
        print(f"{kind}, {n} {GROWS[kind][0]}, seed {seed}", file=sys.stderr, flush=True)
        part = "layer" if kind == LAYERS else "core"
        arrays = [np.ascontiguousarray(x, np.float32) for x in DRAWS[kind](np.random.default_rng(seed), n)]
        exact = exactly(part, arrays)
        ulp = float(np.spacing(np.float32(np.abs(exact).max())))

        def note(who, output, title=kind):
            error = np.abs(np.asarray(output, np.float64) - exact).max() / ulp
            errors[title, n, who] = max(errors.get((title, n, who), 0), float(error))

        for path in PATHS:
            output, bound = ours(shim, path, part, arrays, bounded=path == "fast")
            note(path, output)  # the last path brings the bound
        errors[kind, n, "bound"] = min(errors.get((kind, n, "bound"), math.inf), bound / ulp)
        for title in (title for title, drawn in CACHED.items() if drawn == kind):
            for cache in CACHES:
                output, bound = ours(shim, "fast", part, arrays, cache, bounded=cache == NARROWEST)
                note(cache, output, title)
            check = ours(shim, "exact", part, arrays, cache)[0]
            note(BESIDE, output - check + exact, title)
            errors[title, n, "bound"] = min(errors.get((title, n, "bound"), math.inf), bound / ulp)
        for name, contender in others.items():
            try:
                contender.prepare(Given(part, arrays))
                contender.turn()
                note(name, contender.output())
                contender.release()
            except Absent as why:
                skipped[name] = str(why)
    return errors, {name: c.version for name, c in others.items()}, skipped


def to_bf16(x):
    """Rounded to the nearest number of BF16, ties to even, as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def measure_low(libraries):
    """Errors of products of BF16 by (kind, size, who): the mean square of each row of a head, and the largest, in parts
    of the root mean square of the output; why PyTorch did not take part."""
    shim, found, why = Shim(libraries), {}, None
    try:
        torch = CONTENDERS[LOW[-1]][1](1, libraries)
    except Absent as absent:
        torch, why = None, str(absent)
    for kind, n in [(kind, n) for kind in LOW_KINDS for n in GROWS[kind][1]]:
        print(f"products of BF16: {kind}, {n} {GROWS[kind][0]}", file=sys.stderr, flush=True)
        part, off, size = "layer" if kind == LAYERS else "core", {}, 0
        for seed in range(LOW_SEEDS):
            arrays = [to_bf16(x) for x in DRAWS[kind](np.random.default_rng(seed), n)]
            exact = exactly(part, arrays)
            outputs = {path: ours(shim, path, part, arrays, precision="BF16")[0] for path in PATHS}
            if torch:
                torch.prepare(Given(part, arrays))
                torch.turn()
                outputs[LOW[-1]] = torch.output()
                torch.release()
            size += (exact**2).mean() / LOW_SEEDS
            for who, output in outputs.items():
                off.setdefault(who, []).append((np.asarray(output, np.float64).reshape(-1) - exact).reshape(-1, D))
        for who in off:
            all_of_it = np.concatenate(off[who]) / math.sqrt(size)
            found[kind, n, who] = (all_of_it**2).mean(axis=-1), float(np.abs(all_of_it).max())
    return found, why


# ---------------------------------------------------------------- writing it down

def number(x):
    return f"{x:.1e}" if x < 0.01 else f"{x:.2f}" if x < 10 else f"{x:.0f}" if x < 100000 else f"{x:.1e}"


def best_other(errors, kind, n, others):
    return min(((errors[kind, n, o], o) for o in others if (kind, n, o) in errors), default=None)


def comparison(errors, others):
    """Beyond the bound; beyond twice the best other."""
    beyond, worse = [], []
    for kind, n in [(kind, n) for kind, (_, sizes) in GROWS.items() for n in sizes]:
        best, here = best_other(errors, kind, n, others), f"{kind}, {n} {GROWS[kind][0]}"
        if kind in CACHED:
            beyond += [f"{BESIDE}, {here}"] * (not errors[kind, n, BESIDE] <= errors[kind, n, "bound"])
            continue
        beyond += [f"{path}, {here}: {number(errors[kind, n, path])} ULP, bound {number(errors[kind, n, 'bound'])}"
                   for path in PATHS if not errors[kind, n, path] <= errors[kind, n, "bound"]]
        worse += [f"{path}, {here}: {number(errors[kind, n, path])} ULP, {best[1]} {number(best[0])}"
                  for path in PATHS[1:] if best and errors[kind, n, path] > max(TWICE * best[0], NOISE)]
    return beyond, worse


def shown(kind):
    """The sizes in the report: the shortest, one between, the longest. The plot has all."""
    sizes = GROWS[kind][1]
    return sizes[0], sizes[3], sizes[-1]


def table(kinds, names, cells_of):
    """A row for each input and each size."""
    lines = ["| input | keys or d_model | " + " | ".join(names) + " |", "|---" + "|---:" * (len(names) + 1) + "|"]
    return lines + [f"| {kind} | {n} | " + " | ".join(cells_of(kind, n)) + " |" for kind in kinds for n in shown(kind)]


def main_table(errors, others):
    def cells(kind, n):
        found = sorted((errors[kind, n, o], o) for o in others if (kind, n, o) in errors)
        return ([number(errors[kind, n, x]) for x in PATHS + ["bound"]]
                + ([f"{number(e)} ({o})" for e, o in (found[0], found[-1])] if found else ["", ""]))
    return table(DRAWS, PATHS + ["bound", "best other", "worst other"], cells)


def cache_table(errors):
    names = CACHES + [BESIDE, "bound"]
    return table(CACHED, names, lambda kind, n: [number(errors[kind, n, x]) for x in names])


def low_section(low, why):
    """Products of BF16, compared with PyTorch's."""
    who, larger, most = [w for w in LOW if any(key[2] == w for key in low)], [], 0
    for kind, n, path in [key for key in low if key[2] in PATHS[1:] and (*key[:2], LOW[-1]) in low]:
        (mine, _), (theirs, _) = low[kind, n, path], low[kind, n, LOW[-1]]
        ratio, more = math.sqrt(mine.mean() / theirs.mean()) - 1, mine - theirs
        most = max(most, ratio)
        if more.mean() > 3 * more.std() / math.sqrt(more.size):
            larger.append(f"{path}, {kind}, {n} {GROWS[kind][0]}: {ratio:.2%}")
    return ["", "## Products of BF16", "",
            f"`mha_call.precision` of BF16 on inputs that BF16 holds, {LOW_SEEDS} seeds: root mean square of the error "
            "/ largest error, in % of the root mean square of the output."
            + (f" {LOW[-1]} is skipped: {why}." if why else "")
            + f" The root mean square is at most {most:.2%} larger than PyTorch's. Significantly larger: "
            + ("; ".join(larger) or "none") + ".", "",
            *table(LOW_KINDS, who, lambda kind, n: [
                f"{100 * math.sqrt(low[kind, n, w][0].mean()):.4f} / {100 * low[kind, n, w][1]:.2f}" for w in who])]


def report(errors, versions, skipped, plotted, low):
    beyond, worse = comparison(errors, versions)
    out = ["# Rounding errors", "",
           f"Measured {datetime.datetime.now():%Y-%m-%d} with `make accuracy`: attention with Q, K and V given ({T_Q} "
           f"queries, {H} heads of {D}) and whole layers. Errors are the largest of {SEEDS} seeds against float64, in "
           "ULP of the output scale: the distance of two neighbouring floats at the largest element of the output. The "
           "[bound](../src/manual/explanation/bounds.md) holds for any order of summation.", "",
           "Beyond the bound: " + ("; ".join(beyond) or "nothing") + ".",
           f"Beyond {TWICE} times the best of the others (and {NOISE} ULP): " + ("; ".join(worse) or "nothing") + ".",
           ""]
    out += [f"- {kind}: {' '.join(draw.__doc__.split())}" for kind, draw in DRAWS.items()]
    out += ["", *main_table(errors, versions), "",
            f"![Error against length and width]({os.path.basename(plotted)})", "", "## Caches", "",
            "The same inputs through a cache of each type, on the fast path. 100,000 ULP are about 1 % of the largest "
            f"output. \"{BESIDE}\": the fast and the exact path read the same {NARROWEST} cache, so only arithmetic "
            "differs; the bound is for this column. Layers round slightly different keys, and a few of them to the "
            "next code.", "", *cache_table(errors)]
    out += low_section(*low)
    out += ["", "## Contenders", ""]
    out += [f"- {name}: {CONTENDERS[name][0]} ({version})" for name, version in versions.items()]
    out += [f"- {name}: skipped: {why}" for name, why in skipped.items()]
    return "\n".join(out) + "\n"


def draw(errors, others, path):
    """Error against length and width, into an SVG at path."""
    names = PATHS[1:] + ["bound"] + list(others)
    panels = [(kind, what, {name: [(n, errors[kind, n, name]) for n in sizes if (kind, n, name) in errors]
                            for name in names}) for kind, (what, sizes) in GROWS.items() if kind in DRAWS]
    with open(path, "w") as f:
        f.write(plot.lines(panels, "ULP of the output scale"))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", required=True, metavar="FOLDER", help="where make put the shared objects")
    parser.add_argument("--out", default=os.path.join(here, "ACCURACY.md"))
    options = parser.parse_args()
    plotted = os.path.splitext(options.out)[0] + ".svg"
    errors, versions, skipped = measure(options.libraries)
    draw(errors, versions, plotted)
    text = report(errors, versions, skipped, plotted, measure_low(options.libraries))
    with open(options.out, "w") as f:
        f.write(text)
    print(text)
    return 1 if comparison(errors, versions)[0] else 0


if __name__ == "__main__":
    sys.exit(main())
