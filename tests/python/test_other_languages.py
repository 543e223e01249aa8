"""Kernels in C and Fortran, checked through files alone: what src/manual/howto/conform.md shows."""
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import ROOT

KERNELS = pathlib.Path(ROOT, "tests/kernels")
COMPILERS = {"attention.c": ["cc", "-std=c11", "-O2"], "attention.f90": ["gfortran", "-O2"]}
HERE = [source for source in COMPILERS if shutil.which(COMPILERS[source][0])]
# Bugs of each, by the names under which they are known.
BUGS = {
    "causal-plus-1": {"attention.c": ("causal && i + 1 < k->T ? i + 1", "causal && i + 2 < k->T ? i + 2"),
                      "attention.f90": ("min(i, size(k, 3))", "min(i + 1, size(k, 3))")},
    "d-missing": {"attention.c": (" - taken)", " - 0 * taken)"), "attention.f90": (" - dot_product(in, o))", ")")},
    "group-last-dk": {"attention.c": ("add(row(&d[1], b, j, shared), d_score,",
                                      "if (head % (q->h / k->h) + 1 == q->h / k->h)\n"
                                      "            add(row(&d[1], b, j, shared), d_score,"),
                      "attention.f90": ("d_k(:, shared, j, b) + d_score(j) * q",
                                        "d_k(:, shared, j, b) + d_score(j) * q * merge(1, 0, mod(head, groups) == 0)")},
}


def mha(*arguments):
    return subprocess.run([os.environ["MHA_PROGRAM"], *map(str, arguments)], capture_output=True, text=True)


def built(source, text, folder):
    (folder / source).write_text(text)
    subprocess.run([*COMPILERS[source], "-o", folder / "attention", folder / source, "-lm"], check=True)
    return folder / "attention"


def checked(kernel, folder):
    asked = mha("conform", "--write", folder, "--level", "smoke", "--has", "causal,gqa,cross,value_width,backward")
    assert asked.returncode == 0, asked.stderr
    for case in sorted((folder / "cases").iterdir()):
        subprocess.run([kernel, case, folder / "results" / f"{case.stem}.safetensors"], check=True)
    return mha("conform", "--check", folder)


def test_every_compiler_is_here():
    missing = [COMPILERS[source][0] for source in COMPILERS if source not in HERE]
    if missing:
        pytest.skip(f"no {' '.join(missing)}")


@pytest.mark.parametrize("source", HERE)
def test_a_right_kernel_passes(source, tmp_path):
    found = checked(built(source, (KERNELS / source).read_text(), tmp_path), tmp_path / "asked")
    assert found.returncode == 0 and " 0 failed, 0 without a result" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("source", HERE)
def test_a_wrong_one_is_named(source, bug, tmp_path):
    text, (right, wrong) = (KERNELS / source).read_text(), BUGS[bug][source]
    assert text.count(right) == 1
    found = checked(built(source, text.replace(right, wrong), tmp_path), tmp_path / "asked")
    assert found.returncode == 1 and bug in found.stdout, found.stdout
    forward = [line for line in found.stdout.splitlines() if line.startswith("  ") and "backward" not in line]
    assert any(bug in line for line in forward) == (bug == "causal-plus-1"), found.stdout
