#!/usr/bin/env python3
"""A program that is compiled runs with the library of a later version: in a copy of the sources a setting takes a
reserved word and a weight is added, and a program of today gives what it gives with today's library. A program of that
later version whose setting this library does not know is refused. grown_core.py WORK BUILD CC builds in WORK."""
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
import planted_setting as planting  # noqa: E402

ROOM = "    uint64_t reserved[7]; /* 0; see mha.h */\n} mha_softmax;"
GROWN = "    double grown;\n    uint64_t reserved[6];\n} mha_softmax;"


def grow(work):
    header = work / "include/mha/attention.h"
    text = header.read_text()
    assert ROOM in text, "mha_softmax reserves no words"
    header.write_text(text.replace(ROOM, GROWN))
    planting.put_before(work / "src/attention/call/settings/table.c", "#undef GROUP",
                        '    {PLAIN(grown, softmax.grown), GROUP, POSITIVE, OFF, .meaning = "grown here"},\n',
                        "MHA_SETTINGS_SOFTMAX")
    planting.plant_weight(work)


def program(cc, name, headers, library, *more):
    """Compiled with the headers of one folder and linked with the library of another."""
    planting.run(*cc.split(), "-std=c11", "-w", *more, f"-I{headers}/include", "-o", name, "tests/surface/grown.c",
                 f"-L{library}", "-lmha", "-lm")
    return name


def run_with(library, program_path, code=0):
    done = subprocess.run([program_path], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(library)})
    assert done.returncode == code, f"{program_path} with {library}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def main():
    work, build, cc = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    work.mkdir(parents=True, exist_ok=True)
    planting.copy_sources(work)
    grow(work)
    planting.run(sys.executable, "tests/surface/interface.py", "tests/surface/core.txt", cc, "write", cwd=work)
    later = work / "build"
    planting.run("make", "-s", f"-j{os.cpu_count()}", "-C", work, "BUILD=build", f"CC={cc}", "CFLAGS=-O0",
                 "KERNEL_CFLAGS=-O1", "build/libmha.so")
    today = program(cc, work / "today", ".", build)
    expected = run_with(build, today)
    assert len(expected.splitlines()) == 11, expected
    found = run_with(later, today)
    assert found == expected, f"with the later library a program of today says\n{found}in place of\n{expected}"
    newer = program(cc, work / "newer", work, later, "-DGROWN")
    run_with(later, newer)
    refused = run_with(build, newer, 1)
    assert "softmax: reserved[0]" in refused, f"a setting of a later version is not refused by name: {refused}"
    print("a compiled program runs with a library that has grown; one of a later version is refused by name")


try:
    main()
except AssertionError as e:
    sys.exit(f"grown_core.py: {e}")
