"""The conformance suite from a shell and from pytest: sentences, exit codes, a test for each test case."""
import json
import subprocess
import sys

import mha
import pytest
from mha.conformance import command

KERNELS = '''
import mha
import numpy as np

right = mha.scaled_dot_product_attention


def hurried(q, k, v, is_causal=False):
    """Its maximum begins at 0."""
    scores = q @ k.swapaxes(2, 3) / np.float32(q.shape[3]**0.5)
    if is_causal:
        scores = np.where(np.tri(*scores.shape[2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return weights / weights.sum(-1, keepdims=True) @ v


def scaled(q, k, v):
    return mha.scaled_dot_product_attention(q, k, v, scale=1.0)


def never(q, k, v):
    raise NotImplementedError("\\x1b[31mnot today")


def right_back(q, k, v, output, do, **said):
    return mha.attention_backward(q, k, v, do, layout="BHTD", **said)


def unscaled_back(q, k, v, output, do, **said):
    dq, dk, dv = right_back(q, k, v, output, do, **said)
    return dq * np.float32(q.shape[3]**0.5), dk, dv


class Holder:
    kernel = staticmethod(right)


number = 7
'''


@pytest.fixture()
def kernels(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


def run(*arguments, cwd=None):
    return subprocess.run([sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


@pytest.fixture()
def grade(capfd):
    """Run `mha conform` in this process; the kernel has its own process."""

    def in_this_process(*arguments):
        try:
            code = command.main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
        said = capfd.readouterr()
        assert "\x1b" not in said.out + said.err and "Traceback" not in said.err
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return in_this_process


def test_a_right_kernel_is_passed(kernels, grade):
    found = grade(f"{kernels}:right", "--has", "causal,gqa")
    assert found.returncode == 0 and found.stdout.splitlines()[-1].startswith("PASSED: right passes "), found.stdout
    asked = len(mha.conform(mha.scaled_dot_product_attention, has="causal gqa", level="smoke").results)
    assert f"{asked} of {asked} test cases (mha-conform 1.2, float32, level smoke)" in found.stdout
    assert grade("mha:scaled_dot_product_attention", "--has", "causal").returncode == 0
    assert grade(f"{kernels}:Holder.kernel", "--has", "causal", "--dtype", "float16").returncode == 0


def test_a_wrong_kernel_is_told_what_is_wrong(kernels, grade):
    found = grade(f"{kernels}:hurried")
    assert found.returncode == 1 and found.stdout.splitlines()[-1].startswith("WRONG: hurried passes ")
    assert "with deep-negative inputs (all scores of every row are far below 0" in found.stdout
    assert "y = kernel(q, k, v)" in found.stdout  # the smallest call
    assert "all of which need window (TypeError: " in found.stdout
    found = grade(f"{kernels}:scaled")
    assert found.returncode == 1 and "the numbers are those of scale-" in found.stdout


def test_a_word_that_it_has_makes_an_exception_a_failure(kernels, grade):
    assert grade(f"{kernels}:hurried", "--has", "window").returncode == 1
    assert "Wrong in" in grade(f"{kernels}:hurried", "--has", "causal,window").stdout


def test_what_is_never_answered_is_not_checked(kernels, grade):
    found = grade(f"{kernels}:never")
    assert found.returncode == 4 and "NOT CHECKED: never" in found.stdout and "?[31mnot today" in found.stdout


# A kernel that is right but ends its process: the code that does, at import or with each call.
ENDS = {
    "exit": "sys.exit(0)",
    "_exit": "os._exit(0)",
    "signal": "os.kill(os.getpid(), signal.SIGKILL)",
    "thread": "thread = threading.Thread(target=os._exit, args=(0,)); thread.start(); thread.join()",
    "exec": "os.execv('/bin/true', ['true'])",
    "closed": "os.closerange(3, 256); os._exit(0)",
    "forked": "os.fork() or wait(); os._exit(0)",  # a process that it starts is there when it has ended
    "garbage": "[os.write(fd, b'[0, null, null]\\n') for fd in range(3, 64) if writable(fd)]; os._exit(0)",
    "interrupt": "signal.signal(signal.SIGINT, signal.default_int_handler); _thread.interrupt_main(); time.sleep(1)",
    "base": "raise GeneratorExit",
    "late": "atexit.register(os._exit, 0)",  # its results count
}
ENDING = """
import _thread, atexit, os, signal, sys, threading, time
import mha, numpy

def writable(fd):
    try:
        return os.write(fd, b"") == 0
    except OSError:
        return False

def wait():
    os.closerange(0, 3)
    while os.path.exists(__file__):
        time.sleep(0.01)

def end():
    {end}

def right(q, k, v, **said):
    {call}
    return mha.scaled_dot_product_attention(q, k, v, **said)

def wrong(q, k, v, **said):
    {call}
    return right(q, k, v, **said) * numpy.float32(1.5)

{load}
"""


@pytest.mark.parametrize("end", [end for end in ENDS if end != "late"])
def test_a_kernel_that_ends_its_process_is_not_passed(tmp_path, end):
    path = tmp_path / "kernels.py"
    path.write_text(ENDING.format(load="", end=ENDS[end], call="end()"))
    found = run("mha", "conform", f"{path}:right", "--json")
    path.unlink()
    assert found.returncode == 1 and (found.stdout == "") == (end != "exit"), found.stdout + found.stderr


@pytest.mark.parametrize("end", ["exit", "_exit", "thread"])
def test_a_kernel_that_ends_the_process_that_loads_it_is_not_passed(tmp_path, end):
    path = tmp_path / "kernels.py"
    path.write_text(ENDING.format(load="end()", end=ENDS[end], call=""))
    found = run("mha", "conform", f"{path}:right", "--has", "causal")
    assert found.returncode == (2 if end == "exit" else 1) and found.stdout == ""
    found = suite(path, "--mha-conform", "kernels.py:right")
    assert found.returncode == 4 and "ERROR: --mha-conform: " in found.stderr, found.stdout + found.stderr


def test_results_count_whose_process_ends_otherwise_later(tmp_path, grade):
    path = tmp_path / "kernels.py"
    path.write_text(ENDING.format(load="end()", end=ENDS["late"], call=""))
    assert grade(f"{path}:right", "--has", "").returncode == 0
    assert suite(path, "--mha-conform", "kernels.py:wrong", "--mha-conform-has", "").returncode == 1


def test_a_kernel_that_ends_its_process_late_fails_the_test_it_is_in(tmp_path, grade):
    path = tmp_path / "kernels.py"
    path.write_text(ENDING.format(load="", end=ENDS["_exit"], call="if k.shape[2] == 65: end()"))
    found = suite(path, "--mha-conform", "kernels.py:right", "--mha-conform-has", "causal")
    assert found.returncode == 1 and "FAILED kernels.py:right[plain.q65-s65]" in found.stdout, found.stdout
    assert "\nthe kernel ended the process (exit code 0) before its results were compared\n" in found.stdout
    assert "right[plain.q33" not in found.stdout and "FAILED kernels.py:right[causal.q1-s1]" in found.stdout
    found = grade(f"{path}:right")
    assert found.returncode == 1 and found.stdout == "" and found.stderr == (
        f"mha conform: {path}:right: the kernel ended the process (exit code 0) before its results were compared\n")


def test_prints_of_a_kernel_are_no_part_of_the_report(tmp_path, grade):
    path = tmp_path / "kernels.py"
    path.write_text(ENDING.format(load="print('loaded')", end="os.write(1, b'called'); print(sys.stdin.read())",
                                  call="end()"))
    found = grade(f"{path}:right", "--has", "causal", "--json")
    assert found.returncode == 0 and json.loads(found.stdout)["failed"] == 0
    assert "loaded" in found.stderr and "called" in found.stderr


def test_a_backward_is_checked(kernels, grade):
    found = grade(f"{kernels}:right", "--has", "backward", "--backward", "right_back")
    asked = len(mha.conform(mha.scaled_dot_product_attention, has="backward", level="smoke",
                            backward=lambda *x, **said: x[:3]).results)
    assert found.returncode == 0 and f"{asked} of {asked} test cases" in found.stdout, found.stdout
    found = grade(f"{kernels}:right", "--has", "backward", "--backward", f"{kernels}:unscaled_back")
    assert found.returncode == 1 and "backward.q17-s17" in found.stdout and "scale-missing-dq" in found.stdout
    assert "`kernel` is right and `backward` its backward" in found.stdout
    assert "dq, dk, dv = backward(q, k, v, y, do" in found.stdout, found.stdout
    assert grade(f"{kernels}:right", "--backward", "unscaled_back").returncode == 1


@pytest.mark.needs("torch")
def test_a_backward_of_autograd_is_checked(kernels, grade):
    kernels.write_text("import torch\nkernel = torch.nn.functional.scaled_dot_product_attention\n")
    found = grade(f"{kernels}:kernel", "--has", "causal,backward", "--arrays", "torch")
    asked = sum(set(row.needs) <= {"causal", "backward"} and row.level == 0 for row in mha.conformance.suite.rows())
    assert found.returncode == 0 and f"{asked} of {asked} test cases" in found.stdout, found.stdout


@pytest.mark.parametrize("more, why", [
    (("--backward", "nobody"), "found no 'nobody'"), (("--backward", "/nowhere/k.py:back"), "FileNotFoundError"),
    (("--backward", ""), "or a function of the kernel file"),
    (("--has", "causal,backward"), "backward: expected a function with arrays of numpy")])
def test_a_backward_that_is_none_is_a_bad_request(kernels, more, why, grade):
    found = grade(f"{kernels}:right", *more)
    assert found.returncode == 2 and not found.stdout and why in found.stderr and found.stderr.count("\n") == 1


def test_json_is_the_report(kernels, grade):
    found = grade(f"{kernels}:hurried", "--json")
    record = json.loads(found.stdout)
    assert found.returncode == 1 and record["failed"] > 0
    assert record["failed"] == sum(result["outcome"] == "failed" for result in record["results"])


def test_page_and_badge_are_written(kernels, grade):
    page, badge = kernels.parent / "page.html", kernels.parent / "badge.svg"
    badge.write_text("of before")
    assert grade(f"{kernels}:scaled", "--has", "", "--html", page, "--badge", badge).returncode == 1
    assert page.read_text().startswith("<!DOCTYPE html>") and "Failed" in page.read_text()
    assert run("mha", "conform", f"{kernels}:right", "--has", "", "--badge", "/dev/stdout").stdout.startswith("<svg ")
    link = kernels.parent / "link.svg"
    link.symlink_to(badge)
    assert grade(f"{kernels}:scaled", "--has", "", "--badge", link).returncode == 1 and link.is_symlink()
    assert badge.read_text().startswith("<svg ") and sorted(kernels.parent.glob("*.part")) == []


@pytest.mark.parametrize("files", [("--html", ""), ("--badge", ""), ("--html", "same", "--badge", "same")])
def test_a_name_that_is_none_is_a_bad_request(kernels, files, grade):
    found = grade(f"{kernels}:right", "--has", "", *files)
    assert found.returncode == 2
    assert found.stderr == "mha conform: --html and --badge: expected the names of two files\n"


def test_a_file_that_cannot_be_written_is_said_in_one_line(kernels, grade):
    taken = kernels.parent / "folder"
    taken.mkdir()
    for path in (kernels.parent / "none" / "page.html", taken):
        found = grade(f"{kernels}:right", "--has", "", "--html", path)
        assert found.returncode == 3 and found.stdout == ""
        assert found.stderr.startswith(f"mha conform: {path}: ") and found.stderr.count("\n") == 1
    assert sorted(kernels.parent.glob("*.part")) == []


@pytest.mark.parametrize("target, why", [
    ("kernels.py", "expected FILE.py:FUNCTION"), ("{}:", "expected FILE.py:FUNCTION"), ("{}:nobody", "found no"),
    ("{}:number", "found no"), ("/nowhere/k.py:kernel", "FileNotFoundError"), ("no_such_module:kernel", "No module"),
    ("broken", "SyntaxError"), ("leaves", "SystemExit")])
def test_what_cannot_be_had_is_said_in_one_line(kernels, target, why, grade):
    for name, text in (("broken", "def kernel(:\n"), ("leaves", "raise SystemExit('\\x1b[0m gone')\n")):
        if target == name:
            kernels.write_text(text)
            target = "{}:kernel"
    found = grade(target.format(kernels))
    assert found.returncode == 2 and not found.stdout
    assert found.stderr.startswith("mha conform: ") and why in found.stderr and found.stderr.count("\n") == 1


def test_arrays_that_are_not_here_are_a_bad_request(kernels, grade):
    hidden = kernels.parent / "ml_dtypes.py"
    hidden.write_text("raise ImportError('hidden')\n")
    found = grade(f"{kernels}:right", "--has", "causal", "--dtype", "bfloat16")
    assert found.returncode == 2 and found.stderr == (
        "mha conform: out_dtype: expected a type of numpy, found bfloat16; install ml_dtypes, or give numpy.float32\n")


@pytest.mark.parametrize("more", [("--has", "causal,nothing"), ("--level", "tiny"), ("--dtype", "float64"),
                                  ("--arrays", "lists"), ("--layout", "HTD")])
def test_a_bad_request_says_what_is_expected(kernels, more, grade):
    found = grade(f"{kernels}:right", *more)
    assert found.returncode == 2 and not found.stdout and more[1].split(",")[-1] in found.stderr


def suite(kernels, *arguments):
    return run("pytest", "-q", "-p", "mha.pytest_plugin", "-p", "no:cacheprovider", *arguments, cwd=kernels.parent)


def test_each_question_is_a_test_of_pytest(kernels):
    (kernels.parent / "test_own.py").write_text("def test_own():\n    pass\n")
    found = suite(kernels, "--mha-conform", "kernels.py:hurried")
    report = mha.conform(mha.scaled_dot_product_attention, level="smoke")
    assert found.returncode == 1
    assert "FAILED kernels.py:hurried[deep.q17-s17]" in found.stdout and "1,088 numbers differ" in found.stdout
    counts = [int(word) for word in found.stdout.splitlines()[-1].split() if word.isdigit()]
    assert sum(counts) == len(report.results) + 1
    found = suite(kernels, "--mha-conform", "kernels.py:right", "--mha-conform-has", "causal,gqa")
    assert found.returncode == 0 and "failed" not in found.stdout and "skipped" not in found.stdout


def test_each_question_about_gradients_is_a_test(kernels):
    has = "--mha-conform-has", "backward"
    found = suite(kernels, "--mha-conform", "kernels.py:right", *has, "--mha-conform-backward", "right_back")
    assert found.returncode == 0 and "failed" not in found.stdout and "skipped" not in found.stdout, found.stdout
    found = suite(kernels, "--mha-conform", "kernels.py:right", *has, "--mha-conform-backward",
                  "kernels.py:unscaled_back")
    failed = [line for line in found.stdout.splitlines() if line.startswith("FAILED")]
    assert found.returncode == 1 and failed and all("[backward" in line for line in failed)
    assert "those of scale-missing-dq" in found.stdout, found.stdout
    for more in ((), ("--mha-conform-backward", "nobody")):
        found = suite(kernels, "--mha-conform", "kernels.py:right", *has, *more)
        assert found.returncode == 4 and "ERROR: --mha-conform: " in found.stderr, found.stdout + found.stderr


def test_without_the_option_pytest_is_as_it_was(kernels):
    (kernels.parent / "test_own.py").write_text("def test_own():\n    pass\n")
    found = suite(kernels)
    assert found.returncode == 0 and "1 passed" in found.stdout


def test_pytest_refuses_what_cannot_be_asked(kernels):
    for arguments in (["--mha-conform", "kernels.py:nobody"], ["--mha-conform", "kernels.py:right",
                                                              "--mha-conform-level", "tiny"]):
        found = suite(kernels, *arguments)
        assert found.returncode == 4 and "ERROR: --mha-conform: " in found.stderr, found.stdout + found.stderr
