"""Sealed runs of the conformance suite: each cheat has a named outcome, right kernels pass, receipts obey their
schema."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import kernels
import mha
import pytest
import test_schema
from mha.conformance import receipt, sealed

CHEATS = pathlib.Path(__file__).with_name("cheats.py")


def run(*arguments, cwd, **more):
    """Exit code, standard output, standard error; in an empty folder."""
    return subprocess.run([sys.executable, "-m", "mha", "conform", *map(str, arguments)], capture_output=True,
                          text=True, cwd=cwd, **more)


def judged(kernel, folder, *more):
    """A sealed run and its receipt."""
    file = folder / f"{os.urandom(4).hex()}.json"
    found = run(kernel, "--sealed", "--receipt", file, *more, cwd=folder)
    record = json.loads(file.read_text()) if file.exists() else None
    assert "Traceback" not in found.stderr, found.stderr
    return found, record


def outcomes(record):
    return {x["outcome"] for x in record["results"]}


# The outcome of each cheat; True if it passes without --sealed.
OUTCOMES = {
    "small_numbers": ("wrong-numbers", True), "by_identity": ("wrong-numbers", True),
    "by_address": ("wrong-numbers", False), "stale_memory": ("wrong-numbers", False),
    "changes_inputs": ("inputs-changed", True), "patches_the_judge": ("wrong-numbers", True),
    "asks_the_frames": ("wrong-numbers", True), "late": ("changed-after-return", False),
    "lucky": ("wrong-numbers", False), "one_buffer": ("changed-after-return", True), "leaves_at_once": ("exit", False),
    "leaves_later": ("exit", False), "smoke_lengths": ("wrong-numbers", True), "narrow_result": ("narrowed", False),
    "refuses_hard_inputs": ("exception", True), "reads_the_judge": ("wrong-numbers", True),
    "forges_replies": ("forged-reply", False), "reads_beyond": ("wrong-numbers", False),
    "writes_beyond": ("fence-written", True), "crashes": ("crash", False), "never_returns": ("timeout", False),
    "stops_itself": ("timeout", False), "leaves_a_process": ("wrong-numbers", False), "raises": ("exception", False),
    "no_array": ("malformed", False), "other_shape": ("malformed", False)}


@pytest.mark.parametrize("cheat", kernels.drawn(OUTCOMES, 6))
def test_a_cheat_has_its_outcome(cheat, tmp_path):
    outcome, passes_unsealed = OUTCOMES[cheat]
    limit = "0.5" if outcome == "timeout" else "60"
    found, record = judged(f"{CHEATS}:{cheat}", tmp_path, "--has", "", "--timeout", limit)
    assert found.returncode == 1 and outcome in outcomes(record), found.stdout + found.stderr
    assert record["verdict"] == "failed" and outcome in found.stdout
    if passes_unsealed:
        assert run(f"{CHEATS}:{cheat}", "--has", "", cwd=tmp_path).returncode == 0


def test_a_kernel_that_changes_its_file_is_wrong(tmp_path):
    copy = shutil.copy(CHEATS, tmp_path / "kernel.py")
    found, record = judged(f"{copy}:rewrites_its_file", tmp_path, "--has", "")
    assert found.returncode == 1 and outcomes(record) == {"passed"}
    assert record["changed_files"] == ["kernel.py"] and "kernel.py changed during the run" in found.stdout


def test_a_module_of_the_folder_does_not_replace_one_of_the_judge(tmp_path):
    (tmp_path / "secrets.py").write_text("def randbits(n): return 1\n")
    found = run(f"{CHEATS}:right", "--sealed", cwd=tmp_path)
    assert found.returncode == 2 and "secrets.py was loaded from this folder" in found.stderr


@pytest.mark.parametrize("kernel", kernels.drawn(["right", "prints"], 2))
def test_a_right_kernel_passes_twice(kernel, tmp_path):
    for _ in range(2):
        found, record = judged(f"{CHEATS}:{kernel}", tmp_path, "--has", "causal,gqa,lse,sinks,window,strides,lengths")
        assert found.returncode == 0 and record["verdict"] == "passed" and outcomes(record) == {"passed"}, found
        assert record["passed"] == len(record["results"]) > 60 and record["draw"] == "private"
        assert ("PASSED" in record["output"]) == (kernel == "prints")


@pytest.mark.parametrize("kernel", kernels.drawn([*[f"RIGHT[{x!r}]" for x in kernels.RIGHT], *[
    f"SPLIT[{x!r}]" for x in ("3 parts in turn", "8 parts, base 2")]], 6))
def test_right_kernels_of_other_kinds_pass(kernel, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(f"import sys\nsys.path.append({str(CHEATS.parent)!r})\nimport kernels\nkernel = kernels.{kernel}\n")
    found, record = judged(f"{file}:kernel", tmp_path, "--has", "")
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.needs("ml_dtypes"))])
def test_short_types_pass(dtype, tmp_path):
    found, record = judged(f"{CHEATS}:right", tmp_path, "--has", "causal,window", "--dtype", dtype)
    assert found.returncode == 0 and record["dtype"] == dtype, found.stdout


def test_a_seed_repeats_the_run(tmp_path):
    one, two = (judged(f"{CHEATS}:smoke_lengths", tmp_path, "--has", "", "--seed", "7")[1] for _ in range(2))
    assert one == two and one["draw"] == "given" and one["seed"] == 7
    other = judged(f"{CHEATS}:smoke_lengths", tmp_path, "--has", "")[1]
    assert [x["error"] for x in other["results"]] != [x["error"] for x in one["results"]]


def test_runs_do_not_meet(tmp_path):
    command = [sys.executable, "-m", "mha", "conform", f"{CHEATS}:right", "--sealed", "--has", "", "--rewards", "-"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
               for _ in range(4)]
    for process in running:
        said, _ = process.communicate()
        lines = [json.loads(line) for line in said.splitlines()]
        assert process.returncode == 0 and len(lines) == len(list(mha.test_cases(has=(), level="smoke")))
        assert all(set(x) == {"case", "regime", "outcome", "error", "bug"} and 0 <= x["error"] <= 1 for x in lines)


def test_rewards_tell_the_bug_and_the_error(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("import mha\ndef kernel(q, k, v, **said):\n"
                    "    if not said:\n"
                    "        return mha.scaled_dot_product_attention(q, k, v, scale=1.0)\n"
                    "    y, lse = mha.scaled_dot_product_attention(q, k, v, **said)\n"
                    "    return y, lse + 0.01\n")
    said = run(f"{file}:kernel", "--sealed", "--has", "lse", "--rewards", "-", cwd=tmp_path).stdout
    lines = [json.loads(line) for line in said.splitlines()]
    assert sum("scale" in (x["bug"] or "") for x in lines) > 3
    errors = [x["error"] for x in lines if "lse" in x["case"]]
    assert 1 < max(errors) < 1e6


def test_receipts_obey_their_schema(tmp_path, monkeypatch):
    schema = receipt.schema()
    monkeypatch.setitem(test_schema.TYPES, "null", type(None))
    for kernel, more in (("right", ()), ("raises", ("--has", "causal"))):
        record = judged(f"{CHEATS}:{kernel}", tmp_path, *more)[1]
        assert test_schema.obeys(record, schema)
        assert record["files"]["cheats.py"] == sealed.digest(CHEATS) and record["digest"] == sealed.own_digest()
    assert not test_schema.obeys({**record, "more": 1}, schema)


@pytest.mark.parametrize("command, outcome", [
    ("{program} {{in}} {{out}}", "passed"), ("sh -c 'cp {{in}} {{out}}; : >{{in}}'", "inputs-changed"),
    ("sh -c 'exit 3'", "exit"), ("true {{in}}", "no-result"), ("cp {{in}} {{out}}", "malformed"),
    ("sh -c '! grep -ao \"expected64*[^,]*\\|plain[.]q[0-9]*\" {{in}} && cp {{in}} {{out}}'", "malformed")])
def test_a_command_reads_and_writes_files(command, outcome, tmp_path):
    program = tmp_path / "attention"
    subprocess.run(["cc", "-O1", "-o", program, CHEATS.parents[1] / "kernels/attention.c", "-lm"], check=True)
    found, record = judged(f"--command={command.format(program=program)}", tmp_path, "--has", "")
    assert outcomes(record) <= {outcome, "not-asked"}, found.stdout + found.stderr
    assert found.returncode == (outcome != "passed") and record["files"]


def test_bad_requests_are_refused_in_one_line(tmp_path):
    for words, why in (((), "expected FILE.py:FUNCTION or --command"), (("mha:attention",), "expected FILE.py"),
                       ((f"{CHEATS}:nobody",), "found no 'nobody'"), (("/nowhere.py:f",), "nowhere.py"),
                       ((f"{CHEATS}:right", "--seed", "-1"), "whole number"),
                       ((f"{CHEATS}:right", "--json"), "expected no --html"),
                       ((f"{CHEATS}:right", "--receipt", "-", "--rewards", "-"), "two files")):
        found = run("--sealed", *words, cwd=tmp_path)
        assert found.returncode == 2 and why in found.stderr and "Traceback" not in found.stderr, found
    found = run(f"{CHEATS}:right", "--seed", "1", cwd=tmp_path)
    assert found.returncode == 2 and "expected --sealed" in found.stderr
