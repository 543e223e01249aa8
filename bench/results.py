"""What bench/peers.py measured, written down: shortfalls first, then ratios, times, a plot."""
import os
import platform
import re
import statistics
import sys

import plot
from contenders import ROUNDED

TIE = 0.05  # gaps below this are ties
PART_NAMES = {"core": "attention with Q, K and V given", "layer": "the whole layer",
              "proj": "the four projections alone"}


def best(row):
    return min(row["ms"])


def number(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def threads_of(n):
    return f"{n} thread{'s' * (n > 1)}"


class Piece:
    """One part of one shape on some threads: ours, the fastest other, and what both are held against."""

    def __init__(self, piece):
        self.__dict__.update(piece)
        self.__dict__.update(piece["sizes"])
        self.ran = [r for r in self.rows if r["ms"]]
        ours = [r for r in self.ran if r["name"] == "mha"]
        others = [r for r in self.ran if r["name"] != "mha" and r["name"] not in ROUNDED]
        self.ours = ours[0] if ours else None
        self.other = min(others, key=best) if others else None

    def hold_against(self, pieces):
        """The peak of the machine: the highest measured in this run, as other programs only ever lower it. What can
        be read is the piece's own, measured between its turns: on a shared machine it changes by half in a minute."""
        self.peak = max(p.peak for p in pieces if p.threads == self.threads)

    def ratio(self):
        return best(self.other) / best(self.ours) if self.ours and self.other else None

    def against(self, name):
        rows = [r for r in self.ran if r["name"] == name]
        return best(rows[0]) / best(self.ours) if rows else None

    def percent(self, row):
        return 100 * self.flops / best(row) / 1e6 / self.peak

    def read_percent(self, row):
        return 100 * self.bytes / best(row) / 1e6 / self.reads


# ---------------------------------------------------------------- what is aimed at

def aims(p):
    """(what, found, wanted) of one piece; a gap of under 5 % behind the fastest other is a tie."""
    if not p.ours:
        return
    square = p.T_q == p.T_k and p.T_q >= 512
    if p.decodes and p.part != "proj":
        yield "% of the read bandwidth", p.read_percent(p.ours), 90
    if p.part == "core" and square:
        yield "% of the FMA peak", p.percent(p.ours), 60 if p.causal else 65
        if p.other:
            wanted = {(0, 1): 1.25, (0, 2): 1.5, (1, 1): 1.5, (1, 2): 1.75}.get((p.causal, p.threads))
            if wanted:
                yield f"times as fast as {p.other['name']}", p.ratio(), wanted
    elif p.other and p.part in ("core", "layer"):
        yield f"times as fast as {p.other['name']}", p.ratio(), 1 if p.part == "layer" else 1 - TIE
    if p.part == "layer" and p.shape == "bert8x512":
        yield "% of the FMA peak", p.percent(p.ours), 75
    if p.part == "proj" and not p.decodes:
        rows = p.B * p.T_q
        if rows >= 128:
            yield "% of the FMA peak", p.percent(p.ours), 85 if rows >= 512 else 75
        if p.d_model == 4096 and p.other:
            yield f"times as fast as {p.other['name']}", p.ratio(), 1.3
    if p.part == "proj" and p.against("openblas"):
        yield "times as fast as openblas", p.against("openblas"), 1


def shortfalls(pieces):
    found = [(have / want, p, what, have, want) for p in pieces for what, have, want in aims(p)]
    return sorted((f for f in found if f[0] < 1), key=lambda f: f[0]), len(found)


def list_shortfalls(pieces):
    short, n = shortfalls(pieces)
    lines = ["## Where we fall short", "",
             "Held against: cores of 512 tokens and more at 65 % of the FMA peak (60 % causal) and 1.5 times (1.75 "
             "causal) as fast as the "
             "fastest other on 2 threads, 1.25 (1.5) on one; projections at 85 % of the peak from 512 rows on, 75 % "
             "from 128, at d_model "
             "4096 1.3 times as fast as the fastest other, never behind OpenBLAS; layers ahead of everyone, bert8x512 "
             "at 75 % of "
             f"the peak; decoding at 90 % of the read bandwidth. {n - len(short)} of {n} are met; the others, "
             f"farthest first:", ""]
    if short:
        lines += ["| part | threads | shape | what | found | wanted | found / wanted |",
                  "|---|---|---|---|---|---|---|"]
        lines += [f"| {p.part} | {p.threads} | {p.shape} | {what} | {have:.3g} | {want:.3g} | {ratio:.2f}"
                  + (" (a tie)" if what.startswith("times") and want <= 1 and have > 1 - TIE else "") + " |"
                  for ratio, p, what, have, want in short]
    behind = [p for p in pieces if p.ratio() and p.ratio() < 1 - TIE]
    lines += ["", "Behind the fastest other by more than 5 %: " + (", ".join(
        f"{p.part} {p.shape} on {p.threads} ({p.other['name']}, {p.ratio():.2f})"
        for p in sorted(behind, key=Piece.ratio))
        or "nowhere in this run") + "."]
    return lines


# ---------------------------------------------------------------- tables

def cell(p, row):
    gflops = p.flops / best(row) / 1e6
    limit = f", {p.read_percent(row):.0f}% of {p.reads:.0f} GB/s" if p.decodes else ""
    once = "" if len(row["ms"]) > 1 else ", once"
    median = number(statistics.median(row["ms"]))
    error = f"; {row['error']:.0e}" if "error" in row else ""
    return f"{number(best(row))} / {median} ({number(gflops)}, {p.percent(row):.0f}%{limit}{once}{error})"


def ratio_table(pieces, shapes, keys):
    lines = ["| shape | " + " | ".join(f"{part}, {threads_of(n)}" for part, n in keys) + " |", "|---" * (len(keys) + 1)
             + "|"]
    for shape in shapes:
        found = {(p.part, p.threads): f"{p.ratio():.2f} ({p.other['name']})" for p in pieces
                 if p.shape == shape and p.ratio()}
        lines.append(f"| {shape} | " + " | ".join(found.get(k, "") for k in keys) + " |")
    return lines


def time_table(pieces, contenders):
    """Shapes downwards: there are more of them than of contenders."""
    names = [n for n in contenders if any(r["name"] == n for p in pieces for r in p.ran)]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for p in pieces:
        fastest = min((best(r) for r in p.ran if r["name"] not in ROUNDED), default=0)
        cells = {r["name"]: ("**" if best(r) == fastest else "") + cell(p, r) + ("**" if best(r) == fastest else "")
                 for r in p.ran}
        lines.append(f"| {p.shape} | " + " | ".join(cells.get(n, "") for n in names) + " |")
    return lines


def cpu_name():
    """The processor with its family and model, because clouds call several kinds by one name."""
    said = {}
    with open("/proc/cpuinfo") as f:
        for key, value in (line.split(":", 1) for line in f if ":" in line):
            said.setdefault(key.strip(), value.strip())
    if "model name" not in said:
        return platform.processor() or platform.machine()
    return f"{said['model name']}, family {said.get('cpu family', '?')} model {said.get('model', '?')}"


def report_path(folder, cpu):
    """RESULTS.md where that is of this kind of processor, or is not there; else a file with the processor's name."""
    path = os.path.join(folder, "RESULTS.md")
    if not os.path.exists(path):
        return path
    with open(path) as f:
        if f" on {cpu}, {os.cpu_count()} processors;" in f.read():
            return path
    return os.path.join(folder, f"RESULTS-{re.sub('[^a-z0-9]+', '-', cpu.lower()).strip('-')}.md")


def absences(pieces):
    """Who did not take part in what, but for what the contender was never meant for."""
    said = {}
    for p in pieces:
        for r in p.rows:
            if r.get("absent", "").startswith(("FAILS", "DISAGREES", "stores", "oneDNN")):
                said.setdefault((r["name"], r["absent"]), []).append(f"{p.part} {p.shape}")
    return [f"- {name}, not timed in {', '.join(sorted(set(where)))}: {why}" for (name, why),
            where in sorted(said.items())]


def report(kept, contenders, pieces, plotted):
    keys = sorted({(p.part, p.threads) for p in pieces}, key=lambda k: (list(PART_NAMES).index(k[0]), k[1]))
    shapes = list(dict.fromkeys(p.shape for p in pieces))
    worst = max((r["difference"] for p in pieces for r in p.ran if r["name"] not in ROUNDED), default=0)
    loads, times = [p.load for p in pieces], [p.when for p in pieces]
    options = f' PEERS="{kept["command"]}"' if kept.get("command") else ""
    out = ["# This library beside what people would otherwise use", "",
           f"Measured {min(times)} to {max(times)[11:]} on {cpu_name()}, {os.cpu_count()} processors; "
           f"{platform.system()} {platform.release()}; "
           f"{kept.get('seconds', 0):.0f} s of measuring. Load average {min(loads):.1f} to {max(loads):.1f}"
           + (": other programs were at work beside it now and then, so times scatter."
              if max(loads) > 1.5 * os.cpu_count() else ".")
           + " Compare ratios within one shape, measured in turns; do not compare times across runs.", "",
           f"Command: `make bench-peers{options}`; `bench/peers.py --help` says how to run it in pieces.", ""]
    out += list_shortfalls(pieces)
    out += ["", "## Ratios", "", "The fastest other's best time divided by ours: above 1 we are ahead.", ""]
    out += ratio_table(pieces, shapes, keys)
    out += ["", "## Times", "", "Each cell: best ms / median ms (GFLOP/s of the best, per cent of the FMA peak, the "
                                "highest of this run). "
            "A GEMM counts 2MNK; a core 4 h d_k for each pair of a query and a key that it sees; the "
            "projections "
            "8 B T d^2 where all widths are d; a layer both. Decoding also says how much of the read bandwidth it "
            "reaches, reading cache and "
            "weights once, and of how much: that limit is reading 512 MiB, measured between the turns. The fastest in "
            "float32 is bold; behind a semicolon: the largest error against float64 of eight rows, as a part of the "
            "largest number there; `once`: far slower than we are, one turn only."]
    for part, n in keys:
        here = [p for p in pieces if (p.part, p.threads) == (part, n)]
        out += ["", f"### {part}, {threads_of(n)} ({PART_NAMES[part]}; FMA peak {here[0].peak:.0f} GFLOP/s)", "",
                *time_table(here, contenders)]
    out += ["", f"![GFLOP/s by shape]({os.path.basename(plotted)})"]
    out += ["", "## Who took part", ""]
    out += [f"- {name}: {contenders[name][0]} ({kept['versions'][name]})" for name in contenders
            if name in kept["versions"]]
    out += [f"- {name}: {contenders[name][0]}: **skipped**: {kept['skipped'][name]}" for name in contenders
            if name in kept["skipped"]]
    out += ["- not here: ggml, oneDNN's graph interface, BLIS", *absences(pieces)]
    out += ["", f"All outputs were compared with ours before anything was timed: the largest difference is "
                f"{worst:.1e} of the "
            "largest output (limit 1e-04); of the projections Q, K, V and the product with W_O are compared. Core: Q, "
            "K, V are given as "
            "(B, T, h, d_k), to PyTorch as the (B, h, T, d_k) it likes best. Decoding: one new token, K and V as a "
            "cache keeps them. Every "
            "contender runs in a process of its own with OMP_NUM_THREADS and OPENBLAS_NUM_THREADS set to the number "
            "of threads and "
            "OPENBLAS_CORETYPE unset; Python calls PyTorch, which costs it some microseconds a call, the others "
            "through C. A turn under "
            "4 ms repeats the call and takes the average."]
    return "\n".join(out) + "\n"


# ---------------------------------------------------------------- a plot

def draw(pieces, contenders, path):
    """GFLOP/s by shape on the most threads, into an SVG at path."""
    threads = max(p.threads for p in pieces)
    panels = []
    for part in PART_NAMES:
        here = [p for p in pieces if p.part == part and p.threads == threads and not p.decodes]
        found = {n: {p.shape: p.flops / best(r) / 1e6 for p in here for r in p.ran if r["name"] == n}
                 for n in contenders}
        if here:
            panels.append((f"{part}, {threads_of(threads)}", list(dict.fromkeys(p.shape for p in here)),
                           {n: values for n, values in found.items() if values}))
    with open(path, "w") as f:
        f.write(plot.bars(panels, "GFLOP/s"))


def write(kept, contenders, order, path):
    pieces = [Piece(p) for p in kept["pieces"]]
    if not pieces:
        sys.exit("peers: nothing was measured yet")
    pieces.sort(key=lambda p: order.index(p.shape) if p.shape in order else len(order))
    for p in pieces:
        p.hold_against(pieces)
    plotted = os.path.splitext(path)[0] + ".svg"
    draw(pieces, contenders, plotted)
    with open(path, "w") as f:
        f.write(report(kept, contenders, pieces, plotted))
    print("\n".join(list_shortfalls(pieces)))
    print(f"\nThe whole report: {path}")
