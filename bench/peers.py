"""Measures the same work with this library and with what people would otherwise use, in turns, in one run.

Every contender (bench/contenders.py) is a process of its own, so that no thread pool meets another. For each shape all
outputs are compared first; then rounds, in which each contender has one turn. Writes bench/RESULTS.md and a plot.
"""
import argparse
import datetime
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from contenders import CONTENDERS, Absent, Shim, Work

SHAPES = "tiny16 bert1x128 bert1x512 gpt2_1024 vit197 cross decode2048 llama512"
ARRAYS = "query key value cached_keys cached_values W_Q b_Q W_K b_K W_V b_V W_O b_O".split()
PARTS = ("core", "layer")
SETTLE = 0.02  # seconds after a turn in which its idle workers stop spinning
# Two float32 programs that round every intermediate differently; measured differences are below 1e-5 of the largest.
AGREE = 1e-4


# ---------------------------------------------------------------- the worker's side

def serve(name, threads, shim):
    """Answers one JSON line with another: hello, prepare, turn, release."""
    def answer(**fields):
        print(json.dumps(fields), file=replies, flush=True)

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        contender = CONTENDERS[name][1](threads, shim)
    except Absent as why:
        return answer(absent=str(why))
    answer(version=contender.version)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "prepare":
                contender.prepare(Work(order["shape"], order["layer"], order["sizes"], order["folder"]))
                contender.turn()
                np.save(order["output"], contender.output().reshape(-1))
                answer(done=True)
            elif order["do"] == "turn":
                answer(ms=contender.turn())
            elif order["do"] == "limits":
                answer(peak=contender.shim.limits(threads))
            else:
                contender.release()
                answer(done=True)
        except Absent as why:
            contender.release()
            answer(absent=str(why))
        except Exception as why:  # a library that gives up on one shape takes part in the next
            contender.release()
            answer(absent=f"FAILS: {type(why).__name__}: {str(why).splitlines()[0] if str(why) else ''}")


class Worker:
    def __init__(self, name, threads, shim):
        self.name, self.threads = name, threads
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", name, str(threads), "--shim", shim],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.hello = self.read()

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"absent": "ended with an error"}

    def ask(self, do, **fields):
        if self.process.poll() is not None:
            return {"absent": "ended with an error"}
        self.process.stdin.write(json.dumps(dict(fields, do=do)) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---------------------------------------------------------------- measuring

def measure(shim, workers, shape, part, threads, options, folder):
    """One shape at one thread count: a row for every contender that can do it."""
    opened = shim.open(shape, part == "layer")
    sizes = shim.sizes(opened)
    for name in ARRAYS:
        array = shim.array(opened, name)
        if array is not None:
            np.save(f"{folder}/{name}.npy", array)
    shim.close(opened)
    able, rows, reference = [], [], None
    for worker in workers:
        path = f"{folder}/output.npy"
        reply = worker.ask("prepare", shape=shape, layer=part == "layer", sizes=sizes, folder=folder, output=path)
        row = {"shape": shape, "part": part, "threads": threads, "name": worker.name, "flops": sizes["flops"], "ms": []}
        rows.append(row)
        if "absent" in reply:
            row["absent"] = reply["absent"]
            if "FAILS" in row["absent"]:
                print(f"peers: {worker.name} {part} {shape}: {row['absent']}", file=sys.stderr)
            continue
        output = np.load(path)
        if reference is None:
            reference = output
        row["difference"] = float(np.abs(output - reference).max() / np.abs(reference).max())
        if not row["difference"] <= AGREE:
            row["absent"] = f"DISAGREES by {row['difference']:.1e} of the largest output"
            print(f"peers: {worker.name} {part} {shape}: {row['absent']}", file=sys.stderr)
            worker.ask("release")
            continue
        able.append((worker, row))
    started, peak = time.monotonic(), 0.0
    for turn in range(options.rounds):
        if turn >= 3 and time.monotonic() - started > options.seconds:
            break
        peak = max(peak, workers[0].ask("limits")["peak"])
        for worker, row in able[turn % len(able):] + able[:turn % len(able)]:
            time.sleep(SETTLE)
            row["ms"].append(worker.ask("turn")["ms"])
    for worker, _ in able:
        worker.ask("release")
    for name in ARRAYS:
        if os.path.exists(f"{folder}/{name}.npy"):
            os.remove(f"{folder}/{name}.npy")
    return rows, peak


def run(options):
    shim = Shim(options.shim)
    rows, versions, skipped, peaks = [], {}, {}, {}
    with tempfile.TemporaryDirectory(prefix="mha-peers-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for threads in options.threads:
            workers = []
            for name in CONTENDERS:
                worker = Worker(name, threads, options.shim)
                if "absent" in worker.hello:
                    skipped[name] = worker.hello["absent"]
                    worker.process.wait()
                else:
                    versions[name] = worker.hello["version"]
                    workers.append(worker)
            for part in PARTS:
                for shape in options.shapes:
                    print(f"{part} {shape}, {threads} thread(s)", file=sys.stderr, flush=True)
                    measured, peak = measure(shim, workers, shape, part, threads, options, folder)
                    rows += measured
                    peaks[threads] = max(peak, peaks.get(threads, 0))
            for worker in workers:
                worker.close()
    for row in rows:
        row["peak"] = peaks[row["threads"]]
    return rows, versions, skipped


# ---------------------------------------------------------------- reporting

def best(row):
    return min(row["ms"])


def number(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def cell(row):
    gflops = row["flops"] / best(row) / 1e6
    return f"{number(best(row))} / {number(statistics.median(row['ms']))} ({gflops:.0f}, {100 * gflops / row['peak']:.0f}%)"


def comparisons(rows):
    """(ratio, ours, the fastest other) for each shape, part and thread count; below 1 we are behind."""
    groups = {}
    for row in rows:
        if row["ms"]:
            groups.setdefault((row["part"], row["threads"], row["shape"]), []).append(row)
    out = []
    for group in groups.values():
        ours = [r for r in group if r["name"] == "mha"]
        others = [r for r in group if r["name"] != "mha"]
        if ours and others:
            other = min(others, key=best)
            out.append((best(other) / best(ours[0]), ours[0], other))
    return sorted(out, key=lambda c: c[0])


def cpu_name():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0]}, {len(names)} processors" if names else platform.processor()


def table(rows, shapes, part, threads):
    here = [r for r in rows if r["part"] == part and r["threads"] == threads]
    fastest = {s: min((best(r) for r in here if r["shape"] == s and r["ms"]), default=0) for s in shapes}
    lines = ["| | " + " | ".join(shapes) + " |", "|---" * (len(shapes) + 1) + "|"]
    for name in CONTENDERS:
        cells = {r["shape"]: r for r in here if r["name"] == name and r["ms"]}
        if cells:
            bold = {s: "**" if s in cells and best(cells[s]) == fastest[s] else "" for s in shapes}
            lines.append(f"| {name} | " + " | ".join(bold[s] + cell(cells[s]) + bold[s] if s in cells else "" for s in shapes) + " |")
    return lines


def report(rows, versions, skipped, options, started, seconds, loads, plotted):
    pairs = comparisons(rows)
    behind = [p for p in pairs if p[0] < 0.95]
    ties = [p for p in pairs if 0.95 <= p[0] < 1.05]
    worst = max((r["difference"] for r in rows if r["ms"]), default=0)
    out = ["# This library beside what people would otherwise use", "",
           f"Measured {started:%Y-%m-%d %H:%M} on {cpu_name()}; {platform.system()} {platform.release()}. "
           f"The run took {seconds:.0f} s. Load average {loads[0]:.1f} before it, {loads[1]:.1f} after it"
           + (": the machine was shared with other programs, so times scatter widely. With more threads than free "
              "processors, programs whose threads wait for each other (OpenMP: this library, PyTorch, OpenBLAS) lose most, "
              "and ONNX Runtime loses least: figures on one thread say more." if max(loads[0], loads[1] - 1) > 0.5 * os.cpu_count() else ".")
           + " Compare ratios within one shape, measured in turns; do not compare times across runs.", "",
           "Command: `make bench-peers" + (f' PEERS="{options.given}"' if options.given else "") + "`", "",
           "## Where we fall short", ""]
    if behind:
        out += ["| part | threads | shape | fastest other | its ms | ours, ms | others' time / ours |", "|---|---|---|---|---|---|---|"]
        out += [f"| {o['part']} | {o['threads']} | {o['shape']} | {p['name']} | {number(best(p))} | {number(best(o))} | {ratio:.2f} |"
                for ratio, o, p in behind]
    else:
        out += ["Nowhere behind by more than 5 % in this run."]
    if ties:
        out += ["", "Within 5 %, a tie: " + ", ".join(f"{o['part']} {o['shape']} on {o['threads']} ({p['name']}, {ratio:.2f})"
                                                    for ratio, o, p in ties) + "."]
    out += ["", "## Ratios", "", "The fastest other's best time divided by ours: above 1 we are ahead.", ""]
    keys = [(part, threads) for part in PARTS for threads in options.threads]
    out += ["| shape | " + " | ".join(f"{part}, {n} thread{'s' * (n > 1)}" for part, n in keys) + " |", "|---" * (len(keys) + 1) + "|"]
    for shape in options.shapes:
        found = {(o["part"], o["threads"]): f"{ratio:.2f} ({p['name']})" for ratio, o, p in pairs if o["shape"] == shape}
        out.append(f"| {shape} | " + " | ".join(found.get(k, "") for k in keys) + " |")
    out += ["", "## Times", "", "Each cell: best ms / median ms (GFLOP/s of the best, per cent of the FMA peak, the highest measured in these rounds). "
            "A GEMM counts 2MNK; a core 4 B T_q T_k h d_k, half of that when causal, whatever is really computed; "
            "a layer its projections on top. The fastest is bold."]
    for part, threads in keys:
        peak = max(r["peak"] for r in rows if r["threads"] == threads)
        out += ["", f"### {part}, {threads} thread{'s' * (threads > 1)} (FMA peak {peak:.0f} GFLOP/s)", ""]
        out += table(rows, options.shapes, part, threads)
    if plotted:
        out += ["", f"![GFLOP/s by shape]({os.path.basename(plotted)})"]
    out += ["", "## Who took part", ""]
    out += [f"- {name}: {CONTENDERS[name][0]} ({versions[name]})" for name in CONTENDERS if name in versions]
    out += [f"- {name}: {CONTENDERS[name][0]}: **skipped**: {skipped[name]}" for name in CONTENDERS if name in skipped]
    out += ["- not here: oneDNN's own primitives, ggml"]
    out += ["", f"All outputs were compared with ours before anything was timed: the largest difference is {worst:.1e} of the "
            f"largest output (limit {AGREE:.0e}). Core: Q, K, V are given to us and to ONNX Runtime as (B, T, h, d_k); PyTorch gets the "
            "(B, h, T, d_k) it likes best. Decoding: one new token, K and V as a cache keeps them. Every contender runs in a process of its own "
            "with OMP_NUM_THREADS and OPENBLAS_NUM_THREADS set to the number of threads; Python calls PyTorch, which costs it "
            "some microseconds a call, and ONNX Runtime through its C interface. A turn under "
            f"4 ms repeats the call and takes the average. Up to {options.rounds} rounds for each shape."]
    refused = sorted({(r["name"], r["part"], r["shape"], r["absent"]) for r in rows 
                      if "absent" in r and r["absent"].startswith(("DISAGREES", "FAILS"))})
    out += ["", *[f"- {name} {part} {shape}: {why}: not timed" for name, part, shape, why in refused]] if refused else []
    return "\n".join(out) + "\n"


def plot(rows, options, path):
    """GFLOP/s by shape on the most threads, through gnuplot; the path when it was drawn."""
    if not shutil.which("gnuplot"):
        print("peers: gnuplot is not installed: no plot", file=sys.stderr)
        return None
    threads = max(options.threads)
    script = ["set terminal svg size 1100,760 font 'sans,12' background 'white'", f"set output '{path}'",
              "set style data histograms", "set style histogram clustered gap 1", "set style fill solid 0.85 noborder",
              "set boxwidth 0.9", "set grid ytics", "set key outside right top noenhanced", "set xtics noenhanced nomirror",
              "set ylabel 'GFLOP/s'", "set yrange [0:*]", "set datafile missing '?'", "set multiplot layout 2,1"]
    for part in PARTS:
        found = {(r["name"], r["shape"]): r["flops"] / best(r) / 1e6 for r in rows
                 if r["ms"] and r["part"] == part and r["threads"] == threads}
        names = [n for n in CONTENDERS if any(key[0] == n for key in found)]
        lines = ["shape " + " ".join(names)]
        lines += [s + " " + " ".join(f"{found[n, s]:.1f}" if (n, s) in found else "?" for n in names) for s in options.shapes]
        script += [f"${part} << END", *lines, "END", f"set title '{part}, {threads} thread(s)'",
                   "plot " + ", ".join(f"${part} using {i + 2}:xtic(1) title '{n}'" for i, n in enumerate(names))]
    done = subprocess.run(["gnuplot"], input="\n".join(script) + "\nunset multiplot\n", text=True)
    return path if done.returncode == 0 else None


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", required=True, metavar="FILE", help="build/bench/libshim.so, made by make bench-peers")
    parser.add_argument("--shapes", default=SHAPES, type=str.split, help="names or B,Tq,Tk,d_model,h[,...] as mha bench takes them")
    parser.add_argument("--threads", default="1 2", type=lambda s: [int(n) for n in s.split()])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.5, help="per shape, part and thread count; three rounds are always taken")
    parser.add_argument("--out", default=os.path.join(here, "RESULTS.md"))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve(options.worker[0], int(options.worker[1]), options.shim)
    at = sys.argv.index("--shim")
    options.given = shlex.join(sys.argv[1:at] + sys.argv[at + 2:])
    started, clock, before = datetime.datetime.now(), time.monotonic(), os.getloadavg()[1]
    rows, versions, skipped = run(options)
    plotted = plot(rows, options, os.path.splitext(options.out)[0] + ".svg")
    text = report(rows, versions, skipped, options, started, time.monotonic() - clock, (before, os.getloadavg()[1]), plotted)
    with open(options.out, "w") as f:
        f.write(text)
    print(text)


if __name__ == "__main__":
    main()
