#!/usr/bin/env python3
"""A setting that is declared is there: in a copy of the sources a switch, a number, a choice and an array are planted,
each as a field of a part of mha_semantics and a row of the table of settings, and found by every surface, with no other
change; so are a weight and a field of a layer's configuration. planted_setting.py WORK CC builds in the folder WORK."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

SOURCES = ("Makefile", "src", "include", "weights", "tests", "bench")
# name: declaration, the rest of its row, a value of the option and of the keyword, and what both refuse
SETTINGS = {
    "planted_switch": ("bool planted_switch;", "PLAIN(planted_switch, softmax.planted_switch)", "OFF", None, True,
                       None),
    "planted_real": ("double planted_real;", "PLAIN(planted_real, softmax.planted_real)", "POSITIVE, OFF", "2.5", 2.5,
                     "-1"),
    "planted_choice": ("mha_normaliser planted_choice;",
                       'WORDS(planted_choice, softmax.planted_choice, "plain|striped=stripes")', '.unset = "plain"',
                       "striped", "striped", "dotted"),
    "planted_array": ("const double *planted_array;", "PLAIN(planted_array, softmax.planted_array)",
                      "PER_HEAD", "1,2", [1.0, 2.0], "1,2,3"),
}
WEIGHT = ("    MHA_PLANTED, /* (h) */\n",
          '    [MHA_PLANTED] = {EACH, ONE, NOTHING, SWITCH(sinks), {"planted", "(h)", SINK, S, MHA_PLANTED, false,'
          ' "planted_weight", NULL, "planted here"}},\n')
# Declared in a gap between other fields.
FIELD = ("    bool planted_field;\n", '    {SWITCH(planted_field), .meaning = "planted here"},\n')
LAYER = ["--d-model", "8", "--heads", "2", "--seq", "3"]


def put_before(path, mark, text, after=""):
    """Puts text before the first `mark` that follows `after`."""
    whole = path.read_text()
    at = whole.index(mark, whole.index(after))
    path.write_text(whole[:at] + text + whole[at:])


def copy_sources(work):
    here = pathlib.Path(__file__).resolve().parents[2]
    for name in SOURCES:
        if (here / name).is_dir():
            shutil.rmtree(work / name, ignore_errors=True)
            shutil.copytree(here / name, work / name)
        else:
            shutil.copy2(here / name, work / name)


def plant(work):
    for name, (field, row, more, *_) in SETTINGS.items():
        put_before(work / "include/mha/attention.h", "} mha_softmax;", f"    {field}\n")
        put_before(work / "src/attention/call/settings/table.c", "#undef GROUP",
                   f'    {{{row}, GROUP, {more}, .aliases = "{name}_alias", .meaning = "planted here"}},\n',
                   "MHA_SETTINGS_SOFTMAX")
    plant_weight(work)
    put_before(work / "include/mha/layer.h", "\n    /* For each matrix: a quantised type", FIELD[0])
    put_before(work / "src/attention/layer/config_table.c", "    {TYPE(matrix_dtype", FIELD[1])


def plant_weight(work):
    put_before(work / "include/mha/layer.h", "    MHA_WEIGHT_COUNT\n", WEIGHT[0])
    put_before(work / "src/attention/layer/weights.c", "};\n/* clang-format on */\n_Static_assert",
               WEIGHT[1])


def run(*command, code=0, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    text = " ".join(map(str, command))
    assert done.returncode == code, f"{text}: exit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stderr if code else done.stdout


def expect(where, text, words):
    missing = [w for w in words if w not in text]
    assert not missing, f"{where} does not have {', '.join(missing)}"
    print(f"found in {where}")


def option(name):
    return "--" + name.replace("_", "-")


def given_options():
    return [w for name, (*_, value, _, _) in SETTINGS.items() for w in ([option(name)] + ([value] if value else []))]


def check_program(mha, work):
    names, options = list(SETTINGS), [option(n) for n in SETTINGS]
    flat = " ".join(run(mha, "help", "case").split())
    expect("mha help case", flat, [*names, "planted_weight, planted (h) planted here"])
    expect("mha help forward", run(mha, "help", "forward"), options)
    expect("mha help --manual", run(mha, "help", "--manual"), [f".It Fl {o[1:]}" for o in options])
    expect("the completions", run(mha, "completion", "--words", "forward", "--planted"), options)
    expect("the completions of a choice", run(mha, "completion", "--words", "forward", "--planted-choice", ""),
           ["plain", "striped"])
    case = work / "planted.safetensors"
    said = run(mha, "forward", *LAYER, *given_options(), "--save-case", case)
    meaning = said[said.index("  meaning"):said.index("  run on")]
    expect("the report of mha forward", meaning, names)
    whole = json.loads(run(mha, "forward", *LAYER, *given_options(), "--json"))["config"]
    held = whole["settings"]
    expect("the JSON", held, names)
    assert json.loads(run(mha, "forward", *LAYER, "--planted-field", "--json"))["config"]["planted_field"] is True
    assert whole["planted_field"] is False
    assert held["planted_real"] == 2.5 and held["planted_choice"] == "striped", held
    for name, (*_, value, _, wrong) in SETTINGS.items():
        run(mha, "forward", *LAYER, option(name) + "-alias", *([value] if value else []))
        if wrong:
            expect(f"what mha refuses of {option(name)}",
                   run(mha, "forward", *LAYER, option(name), wrong, code=2), [option(name)])
    check_case(mha, case, work / "wrong.safetensors")
    run(mha, "check", case)


def check_case(mha, case, other):
    """Each planted word is written; with another value the reader refuses it by its name."""
    held = case.read_bytes()
    length = struct.unpack("<Q", held[:8])[0]
    head = json.loads(held[8:8 + length])
    expect("the case that is written", {**head, **head["__metadata__"]}, SETTINGS)
    for name in SETTINGS:
        wrong = json.loads(held[8:8 + length])
        if name in wrong:
            wrong[name].update(dtype="F32", shape=[4])
        else:
            wrong["__metadata__"][name] = "no such value"
        text = json.dumps(wrong).encode()
        other.write_bytes(struct.pack("<Q", len(text)) + text + held[8 + length:])
        done = subprocess.run([mha, "check", other], capture_output=True, text=True)
        assert done.returncode in (2, 4) and name in done.stdout + done.stderr, (name, done)
    print("found by the reader of cases")


PYTHON = """
import sys
import mha
import mha.core.settings
import numpy as np
planted = {planted!r}
q = np.ones((1, 2, 3, 4), "f4")
for name, (value, wrong) in planted.items():
    assert name in mha.core.settings.SETTINGS, name
    mha.scaled_dot_product_attention(q, q, q, **{{name: value}})
    try:
        mha.scaled_dot_product_attention(q, q, q, **{{name: wrong}})
    except (TypeError, ValueError) as e:
        assert name in str(e), (name, e)
    else:
        sys.exit(f"{{name}}={{wrong}} is accepted")
assert mha.MultiHeadAttention(8, 2, planted_field=True).config["planted_field"] is True
words = " ".join(mha.MultiHeadAttention.__doc__.split())
assert "planted_field : bool, default False Planted here" in words, words
"""


def check_python(work, build):
    planted = {name: (value, wrong or "no such value") for name, (*_, value, wrong) in SETTINGS.items()}
    planted = {name: (value, -1.0 if wrong == "-1" else [1.0] if "," in wrong else wrong)
               for name, (value, wrong) in planted.items()}
    run(sys.executable, "-c", PYTHON.format(planted=planted), cwd=work,
        env={**os.environ, "PYTHONPATH": str(build / "python"), "MHA_LIBRARY": str(build / "libmha.so")})
    print("found in Python")


def main():
    work = pathlib.Path(sys.argv[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    copy_sources(work)
    plant(work)
    build = work / "build"
    make = ["make", "-s", f"-j{os.cpu_count()}", "-C", work, "BUILD=build", f"CC={sys.argv[2]}", "CFLAGS=-O1",
            "KERNEL_CFLAGS=-O1", "WERROR=-Werror"]
    has_mpi = shutil.which("mpicc") is not None
    programs = ["build/tests/surface/planted"] + (["build/tests/surface/planted_ranks"] if has_mpi else [])
    run(*make, "build/mha", "python", *programs)
    for program in programs:
        print(run(work / program, *SETTINGS), end="")
    if not has_mpi:
        print("skipped: the digest of ranks: there is no mpicc")
    check_program(build / "mha", work)
    check_python(work, build)
    print(f"{len(SETTINGS)} planted settings, a weight and a field of a layer are found everywhere")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as e:
        sys.exit(f"planted_setting.py: {e}")
