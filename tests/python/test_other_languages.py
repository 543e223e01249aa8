"""Kernels in C and Fortran, judged through files alone: what src/manual/howto/conform.md shows."""
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import ROOT

KERNELS = pathlib.Path(ROOT, "tests/kernels")
COMPILERS = {"attention.c": ["cc", "-std=c11", "-O2"], "attention.f90": ["gfortran", "-O2"]}
# A mistake of each: a query sees the key behind its own.
LATER = {"attention.c": ("causal && i + 1 < k->T ? i + 1", "causal && i + 2 < k->T ? i + 2"),
         "attention.f90": ("min(i, size(k, 2))", "min(i + 1, size(k, 2))")}


def mha(*arguments):
    return subprocess.run([os.environ["MHA_PROGRAM"], *map(str, arguments)], capture_output=True, text=True)


def built(source, text, folder):
    compiler = COMPILERS[source]
    if not shutil.which(compiler[0]):
        pytest.skip(f"no {compiler[0]}")
    (folder / source).write_text(text)
    subprocess.run([*compiler, "-o", folder / "attention", folder / source, "-lm"], check=True)
    return folder / "attention"


def judged(kernel, folder):
    asked = mha("conform", "--write", folder, "--level", "smoke", "--has", "causal,gqa,cross,value_width")
    assert asked.returncode == 0, asked.stderr
    for question in sorted((folder / "questions").iterdir()):
        subprocess.run([kernel, question, folder / "answers" / f"{question.stem}.npy"], check=True)
    return mha("conform", "--judge", folder)


@pytest.mark.parametrize("source", COMPILERS)
def test_a_right_kernel_passes(source, tmp_path):
    found = judged(built(source, (KERNELS / source).read_text(), tmp_path), tmp_path / "asked")
    assert found.returncode == 0 and " 0 failed, 0 not answered" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize("source", COMPILERS)
def test_a_wrong_one_is_named(source, tmp_path):
    text = (KERNELS / source).read_text()
    assert text.count(LATER[source][0]) == 1
    found = judged(built(source, text.replace(*LATER[source]), tmp_path), tmp_path / "asked")
    assert found.returncode == 1 and "causal-plus-1" in found.stdout, found.stdout
