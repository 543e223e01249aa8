"""Recorded results in another order: the search for bugs and pairs ends with an answer, also under sanitizers."""
import os
import pathlib

import kernels
import mha
import numpy as np
import pytest
from conftest import ROOT

R = np.random.default_rng()
FOLDERS = [os.path.join(ROOT, "tests/vectors"), *filter(None, [os.environ.get("CONFORMANCE_DIR")])]
CASES = sorted(path for folder in FOLDERS for path in pathlib.Path(folder).rglob("*.safetensors")
               if path.stat().st_size < 400_000)


def permuted(x):
    """Put the numbers of x in another order: all, one axis, one step on; or give them noise."""
    kind = R.integers(4)
    if kind == 0:
        return R.permutation(x.ravel()).reshape(x.shape)
    if kind == 1:
        axis = int(R.integers(x.ndim))
        return np.take(x, R.permutation(x.shape[axis]), axis=axis)
    if kind == 2:
        return np.roll(x.ravel(), 1 + R.integers(x.size)).reshape(x.shape)
    return (x + R.standard_normal(x.shape)).astype(x.dtype)


@pytest.mark.parametrize("path", kernels.drawn(CASES, 12), ids=lambda path: path.stem)
def test_permuted_results_are_diagnosed(path, tmp_path):
    with mha.load(path) as file:
        tensors, said = {name: np.array(file[name]) for name in file}, file.metadata
    outputs = [name for name in tensors if name.startswith("expected") and name.endswith("output")]
    for name in outputs:
        tensors[name] = permuted(tensors[name]) if tensors[name].size else tensors[name]
    mha.save(tmp_path / "case.safetensors", tensors, said)
    assert not outputs or mha.diagnose(tmp_path / "case.safetensors", time_limit=10.0).sentence
