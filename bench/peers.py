"""Measures the same work with this library and with what people would otherwise use, in turns, in one run.

Every contender (bench/contenders.py) is a process of its own, so that no thread pool meets another. A piece is one part
(core, layer, projections) of one shape on some threads: all outputs are compared first; then rounds, in which each
contender has one turn. Pieces are kept in a file as they are done, so that a run can be cut short and taken up again:

    make bench-peers              all of it, then a plot and bench/RESULTS.md
    make bench-peers PEERS="--shapes 'bert8x512 cross' --parts core --threads 2"      some of it
    make bench-peers PEERS="--resume --budget 60"         what is missing, for a minute; again until it is complete
    make bench-peers PEERS="--redo --budget 60"           what other programs disturbed, once more
    make bench-peers PEERS="--report"                     the report of what is there
"""
import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

import numpy as np

import results
from contenders import CONTENDERS, ROUNDED
from reference import Reference
from work import Absent, Shim, Work

SHAPES = ("tiny16 bert1x128 bert8x128 bert1x512 bert8x512 gpt2_1024 llama512 llama2048 llama3_1024 long8192 long16384 "
          "cross "
          "decode2048 decode8x4096 vit197 width40 width80 width96 width128 width256")
ARRAYS = "query key value cached_keys cached_values W_Q b_Q W_K b_K W_V b_V W_O b_O heads".split()
PARTS = "core layer proj"
SETTLE = 0.05  # seconds after a turn in which its idle workers stop spinning (OpenBLAS: 2^26 cycles)
# Two float32 programs that round every intermediate differently; measured differences are below 1e-5 of the largest.
AGREE = 1e-4
# Two that round inputs, weights and what lies between to bfloat16, half a unit of 2^-8 each time.
AGREE_ROUNDED = 0.1
UNDISTURBED = 0.9  # of the highest FMA peak of the run: a piece in which less was measured had company
SLOW_MS, SLOW = 700, 2  # who takes longer than this and so many times as long as we do has one turn only


# ---------------------------------------------------------------- the worker's side

def serve(name, threads, libraries):
    """Answers one JSON line with another: hello, prepare, turn, release."""
    def answer(**fields):
        print(json.dumps(fields), file=replies, flush=True)

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        contender = CONTENDERS[name][1](threads, libraries)
    except Absent as why:
        return answer(absent=str(why))
    answer(version=contender.version)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["do"] == "prepare":
                contender.prepare(Work(order["shape"], order["part"], order["sizes"], order["folder"]))
                contender.turn()
                np.save(order["output"], contender.output())
                answer(done=True)
            elif order["do"] == "turn":
                answer(ms=contender.turn())
            elif order["do"] == "limits":
                answer(limits=contender.shim.limits(threads, order["reads"]))
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
    def __init__(self, name, threads, libraries):
        self.name, self.threads = name, threads
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
        environment.pop("OPENBLAS_CORETYPE", None)  # its own choice of kernels
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", name, str(threads), "--libraries",
                                         libraries],
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

def hand_out(shim, shape, part, folder):
    """The arrays of a shape as files; its sizes."""
    for name in ARRAYS:
        if os.path.exists(f"{folder}/{name}.npy"):
            os.remove(f"{folder}/{name}.npy")
    opened = shim.open(shape, part)
    sizes = shim.sizes(opened)
    for name in ARRAYS:
        array = shim.array(opened, name)
        if array is not None:
            np.save(f"{folder}/{name}.npy", array)
    if part == "proj":  # what the last projection is given; the shape's own V would do, any numbers do
        np.save(f"{folder}/heads.npy", shim.stage(opened, "fast", 1, "heads").reshape(sizes["B"], sizes["T_q"], -1))
    shim.close(opened)
    return sizes


def measure(shim, workers, shape, part, threads, options, folder):
    """One piece: a row for every contender that can do it."""
    sizes = hand_out(shim, shape, part, folder)
    able, rows, reference = [], [], None
    exact = Reference(Work(shape, part, sizes, folder))
    for worker in workers:
        path = f"{folder}/output.npy"
        reply = worker.ask("prepare", shape=shape, part=part, sizes=sizes, folder=folder, output=path)
        row = {"name": worker.name, "ms": []}
        rows.append(row)
        if "absent" not in reply:
            output = np.load(path)
            reference = output if reference is None else reference
            row["difference"] = float(np.abs(output - reference).max() / np.abs(reference).max())
            row["error"] = exact.error(output)
            if row["difference"] <= (AGREE_ROUNDED if worker.name in ROUNDED else AGREE):
                able.append((worker, row))
                continue
            worker.ask("release")
            reply = {"absent": f"DISAGREES by {row['difference']:.1e} of the largest output"}
        row["absent"] = reply["absent"]
        if row["absent"].startswith(("FAILS", "DISAGREES")):
            print(f"peers: {worker.name} {part} {shape}: {row['absent']}", file=sys.stderr)
    started, limits = time.monotonic(), (0.0, 0.0)
    for turn in range(options.rounds):
        spent = time.monotonic() - started
        if spent > options.seconds and (turn >= 3 or (turn >= 2 and spent > 4 * options.seconds)):
            break
        time.sleep(SETTLE)
        limits = tuple(map(max, limits, workers[0].ask("limits", reads=sizes["bytes"] > 0)["limits"]))
        ours = able[0][1]["ms"][0] if turn else None
        for worker, row in able[turn % len(able):] + able[:turn % len(able)]:
            if turn and row["ms"][0] > SLOW_MS and row["ms"][0] > SLOW * ours:
                continue
            time.sleep(SETTLE)
            row["ms"].append(worker.ask("turn")["ms"])
    for worker, _ in able:
        worker.ask("release")
    return {"shape": shape, "part": part, "threads": threads, "peak": limits[0], "reads": limits[1], "sizes": sizes,
            "rows": rows,
            "load": os.getloadavg()[0], "when": f"{datetime.datetime.now():%Y-%m-%d %H:%M}"}


def key(piece):
    return piece["threads"], piece["part"], piece["shape"]


def disturbed(kept):
    highest = {}
    for piece in kept["pieces"]:
        highest[piece["threads"]] = max(piece["peak"], highest.get(piece["threads"], 0))
    return {key(p) for p in kept["pieces"] if p["peak"] < UNDISTURBED * highest[p["threads"]]}


def run(options, kept):
    """The pieces asked for, written to the file one by one; gives how many the budget has left undone."""
    shim, begun = Shim(options.libraries), time.monotonic()
    wanted = [(threads, part, shape) for threads in options.threads for part in options.parts
              for shape in options.shapes]
    if options.redo:
        wanted = [w for w in wanted if w in disturbed(kept)]
    elif options.resume:
        wanted = [w for w in wanted if w not in map(key, kept["pieces"])]
    workers, count = [], 0
    with tempfile.TemporaryDirectory(prefix="mha-peers-", dir="/dev/shm" if os.path.isdir("/dev/shm")
                                     else None) as folder:
        for threads, part, shape in wanted:
            start = time.monotonic()
            if options.budget and start - begun > options.budget:
                break
            if not workers or workers[0].threads != threads:
                for worker in workers:
                    worker.close()
                workers = [Worker(name, threads, options.libraries) for name in CONTENDERS]
                for worker in workers:
                    kept["versions"].pop(worker.name, None)
                    kept["skipped"].pop(worker.name, None)
                    kept["skipped" if "absent" in worker.hello
                         else "versions"][worker.name] = list(worker.hello.values())[0]
                workers = [w for w in workers if "absent" not in w.hello]
            count += 1
            print(f"{part} {shape}, {threads} thread(s), {count} of {len(wanted)}", file=sys.stderr, flush=True)
            piece = measure(shim, workers, shape, part, threads, options, folder)
            kept["pieces"] = [p for p in kept["pieces"] if key(p) != key(piece)] + [piece]
            kept["seconds"] = kept.get("seconds", 0) + time.monotonic() - start
            with open(options.into + ".part", "w") as f:
                json.dump(kept, f)
            os.replace(options.into + ".part", options.into)
        for worker in workers:
            worker.close()
    return len(wanted) - count


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", required=True, metavar="FOLDER", help="where make bench-peers put its shared "
                                                                             "objects")
    parser.add_argument("--shapes", default=SHAPES, type=str.split, help="names or B,Tq,Tk,d_model,h[,...] as mha "
                                                                         "bench takes them")
    parser.add_argument("--parts", default=PARTS, type=str.split, help=PARTS)
    parser.add_argument("--threads", default="2 1", type=lambda s: [int(n) for n in s.split()])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.0, help="per piece; three rounds are always taken, of the "
                                                                   "longest two")
    parser.add_argument("--into", metavar="FILE", help="where pieces are kept [FOLDER/peers.json]")
    parser.add_argument("--resume", action="store_true", help="keep the pieces that are there, measure those that are "
                                                              "missing")
    parser.add_argument("--redo", action="store_true", help="measure again what other programs disturbed")
    parser.add_argument("--budget", type=float, default=0, metavar="SECONDS", help="begin no further piece after this")
    parser.add_argument("--report", action="store_true", help="only write the report of the pieces that are there")
    parser.add_argument("--out", default=os.path.join(here, "RESULTS.md"))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve(options.worker[0], int(options.worker[1]), options.libraries)
    print(f"On {results.cpu_name()}, {os.cpu_count()} processors; the report: {options.out}", flush=True)
    options.into = options.into or os.path.join(options.libraries, "peers.json")
    kept = {"pieces": [], "versions": {}, "skipped": {}}
    if (options.resume or options.redo or options.report) and os.path.exists(options.into):
        with open(options.into) as f:
            kept = json.load(f)
    if not options.report:
        if not options.resume and not options.redo:
            at = sys.argv.index("--libraries")
            kept["command"] = shlex.join(sys.argv[1:at] + sys.argv[at + 2:])
        missing = run(options, kept)
        if missing:
            print(f"{missing} pieces are left: {'--redo' if options.redo else '--resume'} measures them, --report "
                  f"writes down what is there")
            return
    results.write(kept, CONTENDERS, SHAPES.split(), options.out)
    if disturbed(kept):
        print(f"\n{len(disturbed(kept))} pieces had company of other programs: --redo measures them again")


if __name__ == "__main__":
    main()
