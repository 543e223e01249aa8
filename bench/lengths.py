"""What lengths that nobody rounds cost: attention of 1 to 128 tokens beside lengths that are multiples of 16.

Q, K and V of all heads are given. All lengths take turns in rounds on one thread; a length's time is its
best round. A length between two multiples of 16 is held against the line between their times, one below 16 against the
time of 16. Who pads to the next multiple of 16 stands above that line; a table says the farthest, a picture shows all:

    make bench-lengths            bench/LENGTHS.svg, and the table on the terminal
"""
import argparse
import os
import random

import plot
from work import Shim

LONGEST, STEP = 128, 16
WIDTHS = {"heads of 64": "768,12", "heads of 128": "1024,8"}  # d_model, heads
ALLOWED = 1.10  # of that line


def measure(shim, shape, rounds):
    """{tokens: best ms} of all lengths, in turns."""
    opened = {tokens: shim.open(f"1,{tokens},{tokens},{shape}", "core") for tokens in range(1, LONGEST + 1)}
    best = dict.fromkeys(opened, float("inf"))
    order = random.Random(1)
    for _ in range(rounds):
        for tokens in order.sample(sorted(opened), len(opened)):
            ms = shim.lib.shim_run(opened[tokens], b"fast", 1)
            if ms < 0:
                raise SystemExit(f"lengths: {tokens} tokens cannot be run on the fast path")
            best[tokens] = min(best[tokens], ms)
    for one in opened.values():
        shim.close(one)
    return best


def beside_the_line(best):
    """{tokens: time over that of the line between its neighbours}."""
    ratios = {}
    for tokens, ms in best.items():
        below = tokens // STEP * STEP
        share = (tokens - below) / STEP
        line = best[STEP] if tokens < STEP else best[below] if share == 0 else (
            best[below] * (1 - share) + best[below + STEP] * share)
        ratios[tokens] = ms / line
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", required=True, help="the folder of libshim.so")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of all lengths [40]")
    parser.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "LENGTHS.svg"))
    options = parser.parse_args()
    shim = Shim(options.libraries)
    panels = []
    print("| heads | lengths above 1.10 of the line | farthest |\n|---|---:|---|")
    for name, shape in WIDTHS.items():
        best = measure(shim, shape, options.rounds)
        ratios = beside_the_line(best)
        over = [tokens for tokens in ratios if ratios[tokens] > ALLOWED]
        farthest = sorted(ratios, key=ratios.get, reverse=True)[:8]
        print(f"| {name} | {len(over)} of {LONGEST} | "
              + ", ".join(f"{tokens}: {ratios[tokens]:.2f}" for tokens in farthest) + " |", flush=True)
        panels.append((f"{name}, one thread", "tokens", {
            "each length": [(tokens, best[tokens] * 1e3) for tokens in sorted(best)],
            "multiples of 16": [(tokens, best[tokens] * 1e3) for tokens in sorted(best) if tokens % STEP == 0]}))
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(plot.lines(panels, "microseconds", plot.even))


if __name__ == "__main__":
    main()
