"""No known bug is named for right results, nor for noise. NOISE_RESULTS=n tries n of each kind; the rates of
src/verify/thresholds/thresholds.h were measured with 200 and 150."""
import os

import mha
import numpy as np
import pytest

COUNT = int(os.environ.get("NOISE_RESULTS", "9"))
PARTS = (1e-6, 3e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1)  # of noise, by the size of the numbers


def drawn(seed):
    """A small call."""
    R = np.random.default_rng(seed)
    T, S, d, h = R.integers(3, 9), R.integers(3, 9), int(R.choice([4, 8])), int(R.choice([1, 2, 4]))
    inputs = [R.standard_normal((1, h, n, d)).astype("f4") for n in (T, S, S)]
    said = {name: value for name, value, part in (
        ("is_causal", True, .4), ("softcap", 2.0, .2), ("scale", 0.4, .2), ("window", (2, 1), .2),
        ("sinks", R.standard_normal(h), .2)) if R.random() < part}
    return R, inputs, said


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_forward_with_noise_is_no_bug(seed):
    R, inputs, said = drawn(seed)
    right = mha.scaled_dot_product_attention(*inputs, path=str(R.choice(["fast", "blas"])), **said)
    assert mha.diagnose(right.astype(R.choice(["f2", "f4"])), *inputs, **said).right
    noise = (right + PARTS[seed % 9] * R.standard_normal(right.shape) * right.std()).astype("f4")
    assert not mha.diagnose(noise, *inputs, time_limit=4, **said).names


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_backward_with_noise_is_no_bug(seed):
    R, inputs, said = drawn(seed)
    do = R.standard_normal((*inputs[0].shape[:3], inputs[2].shape[3])).astype("f4")
    found = mha.attention_backward(*inputs, do, layout="BHTD", out_dtype="float64", **said)
    check = mha.testing.assert_gradients_close
    check(*(x.astype("f4") for x in found), *inputs, do, layout="BHTD", **said)
    noise = [(x + PARTS[2 + seed % 7] * R.standard_normal(x.shape) * x.std()).astype("f4") for x in found]
    with pytest.raises(AssertionError) as failed:
        check(*noise, *inputs, do, layout="BHTD", **said)
    assert "explained by" not in str(failed.value)
