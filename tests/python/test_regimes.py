"""Kernels that are wrong in one regime of sizes or settings: level full rejects each, whatever the draw."""
import time

import kernels
import mha
import pytest
import regimes
from test_conform import EVERY, kernel


def test_the_right_kernel_is_right():
    report = mha.conform(regimes.right, level="smoke")
    assert report.passed and len(report.results) > 250, report


@pytest.mark.parametrize("seed", kernels.drawn(range(20), 20))
def test_a_kernel_that_is_wrong_in_one_regime_fails(seed):
    """With the suite's own numbers and 19 other draws: of each kernel the first test case that rejects it."""
    assert regimes.accepted("full", kernels.drawn(regimes.WRONG, 4), seed) == {}


def test_levels_take_no_longer_than_they_say():
    """Of a kernel in numpy with most features: processor time, which other programs do not lengthen."""
    begin = time.process_time()
    assert mha.conform(kernel(), has=EVERY, level="smoke").passed
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("has", ["causal/mask cross gqa scale", {"causal/mask/bool_mask", "scale"}])
def test_words_that_exclude_each_other_are_asked_apart(has):
    """torch.nn.functional.scaled_dot_product_attention takes a mask or is_causal."""
    def one_of_both(q, k, v, **said):
        assert not ("is_causal" in said and "attn_mask" in said)
        return mha.scaled_dot_product_attention(q, k, v, **said)

    report = mha.conform(one_of_both, has=has, level="full")
    assert report.passed and not report.refused, report
    words = {word for result in report.results for word in result.needs}
    assert {"causal", "mask", "scale"} <= words
    with pytest.raises(ValueError, match="window_keep is exercised with words that exclude it"):
        mha.conform(one_of_both, has="window/window_keep", level="smoke")
