"""Writes what bench/peers.py measured: shortfalls, times, a plot."""
import os
import platform
import re
import sys

import plot
from contenders import ROUNDED

TIE = 0.05  # gaps below this are ties
PART_NAMES = {"core": "attention with Q, K and V given", "layer": "the whole layer",
              "proj": "the four projections"}
LIBRARIES = {"mha": re.compile("mha$"), "OpenBLAS": re.compile("openblas$"), "oneDNN": re.compile("onednn$"),
             "libxsmm": re.compile("xsmm"), "ONNX Runtime": re.compile("ort-"),
             "PyTorch": re.compile("torch(?!-bf16)")}  # without contenders that round


def best(row):
    return min(row["ms"])


def number(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def threads_of(n):
    return f"{n} thread{'s' * (n > 1)}"


class Piece:
    """One part of one shape on some threads: ours, the fastest other, and what both are compared with."""

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
    lines = ["## Where mha falls short", "", f"{n - len(short)} of {n} aims are met. The others, farthest first:", ""]
    groups = {}
    for _, p, what, have, want in short:
        limit = what if what.startswith("%") or p.part == "proj" and want == 1 else "times as fast as the fastest other"
        groups.setdefault((p.part, p.threads, f"{want:.3g}", limit), []).append(f"{p.shape} {have:.3g}")
    if groups:
        lines += ["| part | threads | aim | measured |", "|---|---|---|---|"]
        lines += [f"| {part} | {threads} | {want} {limit} | {', '.join(found)} |"
                  for (part, threads, want, limit), found in groups.items()]
    return lines


# ---------------------------------------------------------------- tables

def time_table(pieces, part):
    """A row for each shape: best ms of mha and of each library's fastest operator, for each number of threads."""
    here = [p for p in pieces if p.part == part]
    names = [n for n in LIBRARIES if any(LIBRARIES[n].match(r["name"]) for p in here for r in p.ran)]
    lines = ["| shape | " + " | ".join(names) + " | % of limit |", "|---" * (len(names) + 2) + "|"]
    for shape in dict.fromkeys(p.shape for p in here):
        cells = [[] for _ in names] + [[]]
        for p in sorted((p for p in here if p.shape == shape), key=lambda p: p.threads):
            fastest = min((best(r) for r in p.ran if r["name"] not in ROUNDED), default=0)
            for made, name in zip(cells, names):
                least = min((best(r) for r in p.ran if LIBRARIES[name].match(r["name"])), default=None)
                made.append("–" if least is None else f"**{number(least)}**" if least == fastest else number(least))
            limit = p.read_percent if p.decodes else p.percent
            cells[-1].append(f"{limit(p.ours):.0f}" if p.ours else "–")
        lines.append(f"| {shape} | " + " | ".join(" / ".join(made) for made in cells) + " |")
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


def absences(pieces):
    """The contenders without a time: shapes and reasons, each reason once."""
    said = {}
    for p in pieces:
        for r in p.rows:
            if r.get("absent", "").startswith(("FAILS", "DISAGREES", "stores", "oneDNN")):
                names, shapes = said.setdefault(r["absent"], ({}, {}))
                names[r["name"]] = shapes[p.shape] = True
    return [f"- not timed in {', '.join(shapes)}: {', '.join(names)} ({why})" for why, (names, shapes) in said.items()]


def report(kept, contenders, pieces, plotted):
    worst = max((r["difference"] for p in pieces for r in p.ran if r["name"] not in ROUNDED), default=0)
    loads, times = [p.load for p in pieces], [p.when for p in pieces]
    peaks = " and ".join(f"{peak:.0f} GFLOP/s on {threads_of(n)}"
                         for n, peak in sorted({p.threads: p.peak for p in pieces}.items()))
    options = f' PEERS="{kept["command"]}"' if kept.get("command") else ""
    out = ["# mha next to other libraries", "",
           f"Measured {min(times)} to {max(times)[11:]} on {cpu_name()}, {os.cpu_count()} processors; "
           f"{platform.system()} {platform.release()}; load average {min(loads):.1f} to {max(loads):.1f}; "
           f"peak {peaks}.",
           f"Command: `make bench-peers{options}`. Compare times within a row only: contenders took turns there.", "",
           *list_shortfalls(pieces), "",
           "## Times", "",
           "Best ms on one thread / on two; the fastest is bold. A library's time is that of its fastest operator. "
           "The last column is mha in % of the FMA peak, of decode shapes in % of the read bandwidth. Shapes: "
           "`mha bench --shape list`."]
    for part in dict.fromkeys(p.part for p in sorted(pieces, key=lambda p: list(PART_NAMES).index(p.part))):
        out += ["", f"### {part}: {PART_NAMES[part]}", "", *time_table(pieces, part)]
    out += ["", f"![GFLOP/s by shape]({os.path.basename(plotted)})", "", "## Contenders", ""]
    out += [f"- {name}: {contenders[name][0]} ({kept['versions'][name]})" for name in contenders
            if name in kept["versions"]]
    out += [f"- {name}: {contenders[name][0]}: **skipped**: {kept['skipped'][name]}" for name in contenders
            if name in kept["skipped"]]
    out += absences(pieces)
    out += ["", f"Before a time counts, the output is compared with mha's: the largest difference was {worst:.1e} of "
                "the largest output (limit 1e-04). bfloat16 contenders are in the figure only."]
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
