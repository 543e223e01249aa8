"""mha.testing.power(benchmark=): published tests by name, as in `mha power --benchmark`."""
import json
import os
import subprocess

import pytest

import mha


def test_a_published_test_gives_the_rows_of_the_program():
    power = mha.testing.power(benchmark="onnx-attention")
    out = subprocess.run([os.environ.get("MHA_PROGRAM", "mha"), "power", "--benchmark", "onnx-attention", "--json"],
                         capture_output=True, check=False, text=True)
    told = json.loads(out.stdout)
    assert out.returncode == 1
    assert [row["bugs"][0] for row in told["accepted"]] == power.accepted == ["inputs-f16"]
    assert sorted(row["bugs"][0] for row in told["rejections"]) == sorted(power.rejected)
    assert sorted(told["same"]) == sorted(power.same)


def test_names_and_other_arguments_are_checked():
    with pytest.raises(ValueError, match="benchmark: expected one of flash-attention, .*found 'kernelbench'"):
        mha.testing.power(benchmark="kernelbench")
    with pytest.raises(ValueError, match="benchmark: expected no other argument but threads, found atol"):
        mha.testing.power(benchmark="onnx-attention", atol=1e-3)
    with pytest.raises(ValueError, match="benchmark: expected no other argument but threads, found is_causal"):
        mha.testing.power(benchmark="onnx-attention", is_causal=True)
    with pytest.raises(TypeError, match="query: expected an array, or benchmark=, found neither"):
        mha.testing.power()
