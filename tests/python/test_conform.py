"""The conformance suite in Python: right kernels pass, wrong ones are named, conventions and invariances are found."""
import collections
import html.parser
import importlib
import json
import os
import subprocess
import xml.etree.ElementTree

import kernels
import mha
import numpy as np
import pytest
from mha import testing

BFLOAT16 = pytest.param("bfloat16", marks=pytest.mark.needs("ml_dtypes"))
EVERY = "causal cross gqa value_width scale softcap window mask bool_mask lengths sinks lse strides"


def ours(q, k, v, **said):
    return mha.scaled_dot_product_attention(q, k, v, **said)


def flash(q, k, v, **said):
    return mha.attention(q, k, v, layout="BTHD", **said)


def with_past(q, k, v, past_key=None, past_value=None, **said):
    """The same with the keys and values of earlier calls in front."""
    if past_key is None:
        return ours(q, k, v, **said)
    if "rope" in said:
        raise NotImplementedError("keys of earlier calls are rotated already")
    said.setdefault("offset", past_key.shape[2])
    return ours(q, np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2), **said)


def kernel(bug=""):
    """Attention by hand, with a bug or in a convention."""

    def run(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False, window=None, softcap=0.0,
            lengths=None, sinks=None, return_lse=False):
        B, h, T, d = q.shape
        S, groups = k.shape[2], h // k.shape[1]
        k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
        scores = (q @ k.swapaxes(2, 3)).astype(np.float32) * np.float32(d**-0.5 if scale is None else scale)
        scores = scores * np.float32(1.01) if bug == "scale" else scores
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        i, j = np.arange(T)[:, None], np.arange(S)[None]
        i = i + (S - T if bug == "bottom-right" else 0)
        seen = np.ones((B, h, T, S), bool)
        if is_causal:
            seen &= j <= i + (bug == "causal-plus-1")
        if window is not None:
            left, right = window[0] - (bug == "w"), window[1]
            seen &= (j >= i - left) if window[0] >= 0 else True
            seen &= (j <= i + right) if right >= 0 else True
        if lengths is not None:
            seen &= j < np.asarray(lengths)[:, None, None, None]
        if attn_mask is not None and attn_mask.dtype == bool:
            seen &= ~attn_mask if bug == "hides" else attn_mask
        elif attn_mask is not None:
            scores = scores + attn_mask
        scores = np.where(seen, scores, -np.inf).astype(np.float32)
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        if sinks is not None:
            top = np.maximum(top, np.asarray(sinks, np.float32)[None, :, None, None])
        top = np.where(np.isfinite(top), top, 0) if bug != "maximum-from-0" else np.maximum(top, 0)
        p = np.exp(scores - top)
        total = p.sum(-1, keepdims=True)
        if sinks is not None and bug != "sinks-missing":
            total = total + np.exp(np.asarray(sinks, np.float32)[None, :, None, None] - top)
        with np.errstate(all="ignore"):
            weights = p / total if bug == "nan" else np.where(total > 0, p / total, 0)
            lse = (top + np.log(total))[..., 0]
        out = (weights @ np.where(np.isnan(v), 0, v)).astype(np.float32)
        return (out, lse / np.log(2) if bug == "base-2" else lse) if return_lse else out

    return run


def back(bug="", forward=""):
    """The backward of attention by hand in float32, with a bug: the weights are the output of unit values."""

    def run(q, k, v, output, do, **said):
        (B, h, T, d), (_, h_kv, S, _) = q.shape, k.shape
        recomputed = kernel("maximum-from-0" if bug == "maximum-from-0" else forward)
        weights = recomputed(q, k, np.broadcast_to(np.eye(S, dtype="f4"), (B, h_kv, S, S)), **said)
        seen, v = weights != 0, np.where(np.isnan(v), 0, v)
        wide_k, wide_v = (np.repeat(x, h // h_kv, 1) for x in (k, v))
        d_weights = do @ wide_v.swapaxes(2, 3)
        taken = 0 if bug == "d-missing" else (do * output).sum(-1, keepdims=True)
        d_scores = np.where(seen, weights * (d_weights - taken), 0) * np.float32(said.get("scale", d**-0.5))
        each = d_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ do
        dk, dv = (x.reshape(B, h_kv, h // h_kv, S, -1) for x in each)
        dk = dk[:, :, -1] if bug == "group-last-dk" else dk.sum(2)
        dq = d_scores @ wide_k
        if bug == "empty-rows-nan":
            dq = np.where(seen.any(-1, keepdims=True), dq, np.nan)
        return (dq, dk) if bug == "two" else (None if bug == "none" else dq, dk, dv.sum(2))

    return run


@pytest.fixture(autouse=True)
def few_diagnoses(monkeypatch, request):
    """Diagnose only 4 of the failures in a report: diagnoses take most of the time."""
    if not request.node.get_closest_marker("all_diagnoses"):
        monkeypatch.setattr(importlib.import_module("mha.conformance.conform"), "_DIAGNOSED", 4)


# ---------------------------------------------------------------- right kernels


@pytest.mark.parametrize("at", kernels.drawn(range(len(kernels.SPLIT)), 6), ids=list(kernels.SPLIT).__getitem__)
def test_keys_in_parts_and_exponentials_of_2_pass(at):
    """At level smoke, and in one of three kinds of inputs at level full; right_peer.py takes every one."""
    ours = list(kernels.SPLIT.values())[at]
    has = "causal cross gqa value_width scale softcap window offset mask bool_mask lengths sinks lse"
    with np.errstate(all="ignore"):
        assert not mha.conform(ours, has=has, level="smoke").failed
        only = ("deep", "lowest", "rising")[at % 3]
        report = mha.conform(ours, has=has, only=only, dtype="float16" if only == "deep" else "float32")
        assert not report.failed and len(report.results) > 4, report


@pytest.mark.parametrize("path", ["fast", "blas", "exact"])
def test_every_path_passes(path):
    report = mha.conform(lambda *x, **said: with_past(*x, path=path, **said), level="smoke")
    assert report.passed, report
    words = {word for result in report.refused for word in result.needs}
    assert "pages" in words and not words & {"extra_row", "qk_norm", "sinks"}
    assert sum(result.outcome == "passed" for result in report.results) > 130


@pytest.mark.parametrize("dtype", [BFLOAT16, "float16"])
def test_halves_pass(dtype):
    report = mha.conform(with_past, level="smoke", dtype=dtype)
    assert report.passed and report.dtype == dtype, report


def test_flash_words():
    report = mha.conform(flash, layout="BTHD", level="smoke")
    assert report.passed, report
    assert report.conventions["alignment"] == "bottom-right"


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
def test_pages(layout):
    def paged(q, k, v, page_table=None, page_lengths=None, **said):
        if page_table is None:
            raise NotImplementedError("pages alone")
        said = {name: value for name, value in said.items() if name not in ("is_causal", "enable_gqa")}
        return mha.paged_attention(q, k, v, page_table, page_lengths, layout=layout, **{**said, "causal": True})

    report = mha.conform(paged, layout=layout, level="full", only="pages")
    assert report.passed and not report.refused, report


def test_a_kernel_by_hand_passes():
    report = mha.conform(kernel(), has=EVERY, level="smoke")
    assert report.passed and not report.refused, report


# ---------------------------------------------------------------- wrong kernels


@pytest.mark.parametrize("bug, family, name", [
    ("causal-plus-1", "causal", "causal-plus-1"), ("sinks-missing", "sinks", "sinks-missing"),
    ("scale", "gqa", "scale-other 0.2525")])
def test_wrong_kernels_are_named(bug, family, name):
    report = mha.conform(kernel(bug), has=EVERY, level="smoke", only=family)
    assert not report.passed
    assert name in [n for result in report.failed if result.family == family for n in result.names], report
    assert name in str(report)


def test_a_regime_shows_what_random_numbers_do_not():
    report = mha.conform(kernel("maximum-from-0"), has=EVERY, level="smoke")
    assert {result.regime for result in report.failed} == {"deep-negative", "below-lowest"}, report


def test_a_kernel_that_writes_to_its_inputs_is_checked_by_what_it_was_given():
    def careless(q, k, v, **said):
        result = ours(q, k, v, **said)
        k[:] = 0
        return result

    assert mha.conform(careless, has="causal", level="smoke", only="causal.").passed


# ---------------------------------------------------------------- backward


def ours_back(q, k, v, output, do, **said):
    return mha.attention_backward(q, k, v, do, layout="BHTD", **said)


@pytest.mark.parametrize("dtype", ["float32", BFLOAT16, "float16"])
def test_right_gradients_pass(dtype):
    report = mha.conform(ours, backward=ours_back, level="smoke", dtype=dtype, only="backward")
    assert report.passed and sum(result.outcome == "passed" for result in report.results) > 40, report
    turned = mha.conform(flash, backward=lambda q, k, v, output, do, **said: mha.attention_backward(
        q, k, v, do, layout="BTHD", **said), layout="BTHD", level="smoke", dtype=dtype, only="backward")
    assert turned.passed and turned.conventions["alignment"] == "bottom-right", turned


@pytest.mark.parametrize("dtype", ["float32", BFLOAT16, "float16"])
def test_gradients_of_every_regime_are_checked(dtype):
    for only in ("backward-lowest", "backward-deep", "backward-large"):
        report = mha.conform(ours, backward=ours_back, level="full", dtype=dtype, only=only)
        assert report.passed and not report.refused, report


# Without a softcap, of which the backward by hand has no derivative.
NO_SLOPE = " ".join(word for word in EVERY.split() if word not in ("softcap", "lse")) + " backward"


def test_gradients_by_hand_pass():
    report = mha.conform(kernel(), backward=back(), has=NO_SLOPE, level="smoke", only="backward")
    assert report.passed and not report.refused and len(report.results) > 35, report


@pytest.mark.parametrize("bug, only, name", [
    ("d-missing", "backward-causal", "d-missing"), ("group-last-dk", "backward-gqa", "group-last-dk"),
    ("empty-rows-nan", "empty", "empty-rows-nan")])
def test_wrong_gradients_are_named(bug, only, name, tmp_path):
    report = mha.conform(kernel(), backward=back(bug), has=NO_SLOPE, level="smoke", only=only)
    assert report.failed and all(name in result.names for result in report.failed), report
    first = report.failed[0]
    assert first.family.startswith("backward") and first.reason.startswith(("d_query", "d_key")), first
    assert name in str(report) and name in Page(report.to_html()).text and first.max_abs > first.atol
    assert json.loads(json.dumps(report.to_dict()))["results"][-1]["outcome"] in ("failed", "passed")
    small = report.reduce(first.case)
    assert name in small.names and small.q.size <= 4 and small.do.size <= 4, small
    report.save(first.case, tmp_path / "case.safetensors")
    assert mha.check(tmp_path / "case.safetensors").failed
    found = mha.diagnose(tmp_path / "case.safetensors")
    assert not found.right and name in found.names and name in str(found) and name in found.sentence
    assert mha.diagnose(tmp_path / "case.safetensors", tensor="expected.d_query").names == found.names


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
@pytest.mark.parametrize("bug, only, shapes", [
    ("d-missing", "backward-causal.q17", ((1, 1, 1, 1), (1, 1, 1, 1))),
    ("group-last-dk", "backward-gqa-causal.b2", ((1, 2, 2, 1), (1, 1, 2, 1))),
    ("group-last-dk", "backward-gqa.b2", ((1, 2, 2, 1), (1, 1, 2, 1))),
    ("empty-rows-nan", "backward-bool-mask-empty", ((1, 1, 2, 1), (1, 1, 2, 1))),
    ("maximum-from-0", "backward-deep.q17", ((1, 1, 1, 1), (1, 1, 1, 1)))])
def test_wrong_gradients_are_made_small(bug, only, shapes, layout, tmp_path):
    """To the smallest call of which the forward is right and a gradient wrong, as a case and as lines that show it."""
    def turned(x):
        return x if layout == "BHTD" else x.swapaxes(1, 2)

    def words(said):
        others = {"causal": "is_causal", "mask": "attn_mask"}
        return {others.get(name, name): x for name, x in said.items() if name != "mask_kind"}

    def forward(q, k, v, **said):
        return turned(kernel()(*map(turned, (q, k, v)), **words(said)))

    def backward(q, k, v, output, do, **said):
        return tuple(map(turned, back(bug)(*map(turned, (q, k, v, output, do)), **words(said))))

    report = mha.conform(forward, backward=backward, layout=layout, level="smoke", only=only,
                         has="causal gqa bool_mask backward")
    small = report.reduce(report.failed[0].case)
    assert tuple(turned(x).shape for x in (small.q, small.k)) == shapes, small
    assert bug == "maximum-from-0" or bug in small.names, small
    small.save(tmp_path / "small.safetensors")
    assert mha.check(tmp_path / "small.safetensors").first.startswith("d_")
    with pytest.raises(AssertionError, match="d[qkv] differs"):
        exec(small.script, {"kernel": forward, "backward": backward})
    exec(small.script, {"kernel": forward, "backward": lambda q, k, v, output, do, **said: mha.attention_backward(
        q, k, v, do, layout=layout, **said)})
    assert len(small.script.splitlines()) <= 10


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_autograd_are_made_small(dtype):
    import torch

    right = torch.nn.functional.scaled_dot_product_attention

    def wrong(q, k, v, **said):
        y = right(q, k, v, **said)
        y.requires_grad and y.register_hook(lambda do: do * 1.5)
        return y

    report = mha.conform(wrong, arrays="torch", dtype=dtype, has="causal backward", level="smoke", only="causal.q17")
    assert report.failed
    small = report.reduce(report.failed[0].case)
    assert small.q.shape == (1, 1, 1, 1) and len(small.script.splitlines()) <= 10, small
    with pytest.raises(AssertionError, match="dv differs"):
        exec(small.script, {"kernel": wrong})
    exec(small.script, {"kernel": right})
    assert report.reduce("backward-causal.q17-s17") is not None and report.reduce("causal.q17-s17") is None


def test_a_wrong_forward_with_gradients_is_made_small():
    report = mha.conform(kernel("causal-plus-1"), backward=back(), has="causal backward", level="smoke",
                         only="backward-causal.q17")
    small = report.reduce(report.failed[0].case)
    assert small.do is None and "causal-plus-1" in small.names and "backward" not in small.script, small


def test_a_regime_shows_a_backward_that_random_numbers_do_not():
    report = mha.conform(kernel(), backward=back("maximum-from-0"), has=NO_SLOPE, level="smoke")
    assert {result.regime for result in report.failed} == {"below-lowest", "deep-negative"}, report
    assert all(result.family.startswith("backward") for result in report.failed)


@pytest.mark.parametrize("convention", ["bottom-right", "w", "hides"])
def test_gradients_are_held_to_the_convention(convention):
    words = "causal cross window bool_mask backward"
    report = mha.conform(kernel(convention), backward=back(forward=convention), has=words, level="smoke", only="back")
    assert report.passed and not report.refused, report
    assert mha.conform(kernel(convention), backward=back(), has=words, level="smoke", only="back").failed


def test_queries_that_see_no_key_have_no_gradient_in_any_convention():
    """Where their output is the mean of all values, what comes in is 0."""
    def mean(q, k, v, attn_mask=None, **said):
        mask = None if attn_mask is None else np.where(attn_mask, 0, np.finfo("f4").min).astype("f4")
        return kernel()(q, k, v, attn_mask=mask, **said)

    def mean_back(q, k, v, output, do, attn_mask=None, **said):
        if attn_mask is not None:
            empty = ~np.broadcast_to(attn_mask, (*q.shape[:3], k.shape[2])).any(3)
            assert not np.any(do[empty]) and np.all(do[~empty].any(-1))
            told.append(empty.sum())
        mask = None if attn_mask is None else np.where(attn_mask, 0, np.finfo("f4").min).astype("f4")
        return back()(q, k, v, output, do, attn_mask=mask, **said)

    told = []
    report = mha.conform(mean, backward=mean_back, has="causal bool_mask gqa backward", level="smoke")
    assert report.passed and report.conventions["empty"] == "mean" and max(told) > 0, report
    for name in ("bool-mask-empty.b2-h4-q9-s9", "backward-bool-mask-empty.b2-h4-q9-s9"):
        assert report.reduce(name) is None, report.reduce(name)


def test_gradients_of_what_has_no_backward():
    assert not any("backward" in result.needs for result in mha.conform(ours, level="smoke", only="causal.").results)
    with pytest.raises(TypeError, match="^backward: expected a function with arrays of numpy"):
        mha.conform(ours, has="causal backward", level="smoke")
    with pytest.raises(TypeError, match="^backward: expected a function, found int"):
        mha.conform(ours, backward=1)
    for bug, words in (("none", "dq: expected a gradient of the backward, found None"),
                           ("two", "expected dq, dk and dv, found tuple of 2")):
        report = mha.conform(kernel(), backward=back(bug), has="backward", level="smoke", only="backward")
        assert len(report.failed) == len(report.results) and words in str(report)
    report = mha.conform(kernel(), backward=lambda q, k, v, output, do: (q[..., 1:], k, v), has="backward",
                         level="smoke", only="backward.")
    assert "dq: expected shape" in report.failed[0].reason
    wrong = mha.conform(lambda q, k, v: ours(q, k, v) * 2, backward=back(), has="backward", level="smoke",
                        only="backward.")
    assert wrong.failed[0].reason.startswith("output") and "dropout-scale 0.5" in wrong.failed[0].because, wrong


# ---------------------------------------------------------------- files


@pytest.mark.all_diagnoses
@pytest.mark.parametrize("bug, of_backward", [
    ("", "empty-rows-nan"), ("nan", "d-missing"), ("hides", ""), ("bottom-right", "group-last-dk"),
    ("maximum-from-0", "")])
def test_files_and_calls_give_the_same_answers(bug, of_backward, tmp_path):
    """Results in files get the same verdicts, bugs and conventions as results of calls."""
    def program(*arguments):
        return subprocess.run([os.environ["MHA_PROGRAM"], "conform", *arguments], capture_output=True, text=True)

    words = "causal cross gqa bool_mask lengths backward"
    forward, backward = kernel(bug), back(of_backward, bug)
    report = mha.conform(forward, backward=backward, has=words, level="smoke")
    assert program("--write", tmp_path, "--level", "smoke", "--has", words).returncode == 0
    every = {row.name: row for row in mha.conformance.suite.rows()}
    choices = mha.conformance.suite.choices_of(report.conventions)
    for result in report.results:
        row = every[result.case]
        (q, k, v), said = mha.conformance.suite.Case(row, mha.core.abi.F32).ask("BHTD", lambda x, code: x)
        found = {"output": forward(q, k, v, **said)}
        if "backward" in result.needs:
            do = mha.conformance.suite.Case(row, mha.core.abi.F32, choices).d_output("BHTD", lambda x, code: x)
            found.update(zip(("d_query", "d_key", "d_value"), backward(q, k, v, found["output"], do, **said)))
        np.savez(tmp_path / "results" / f"{result.case}.npz", **{n: x.swapaxes(1, 2) for n, x in found.items()})
    checked = program("--check", tmp_path, "--json")
    said = json.loads(checked.stdout)
    assert checked.returncode == (0 if report.passed else 1), checked.stderr
    assert {d["convention"]: d["choice"] for d in said["conventions"]} == report.conventions
    assert len(said["cases"]) == len(report.results)
    for row, result in zip(said["cases"], report.results):
        assert (row["name"], row["status"]) == (result.case, result.outcome)
        assert [name.replace(" + ", "+") for name in row.get("bugs", [])] == result.names, result.case
        assert row["mismatches"] == result.mismatches and (row.get("reason") or "") == result.reason
        assert row["max_abs"] == pytest.approx(result.max_abs) or not np.isfinite(result.max_abs)


# ---------------------------------------------------------------- conventions


@pytest.mark.parametrize("bug, convention, choice", [
    ("bottom-right", "alignment", "bottom-right"), ("nan", "empty", "nan"), ("w", "window", "w"),
    ("hides", "mask", "hides"), ("base-2", "lse", "base-2")])
def test_conventions_are_found_and_held_to(bug, convention, choice):
    report = mha.conform(kernel(bug), has=EVERY, level="smoke")
    assert report.passed, report
    assert report.conventions[convention] == choice
    first = next(iter(mha.conformance.suite.CONVENTIONS[convention].choices))
    held = mha.conform(kernel(bug), has=EVERY, level="smoke", conventions={convention: first})
    assert not held.passed and held.conventions[convention] == first
    assert [d for d in held.to_dict()["conventions"] if d["convention"] == convention][0]["how"] == "declared"


def test_a_convention_is_found_without_its_probe():
    report = mha.conform(kernel("nan"), has="bool_mask gqa", level="smoke")
    assert report.passed and report.conventions == {"mask": "keeps", "empty": "nan"}, report


# ---------------------------------------------------------------- reports


def test_reports_are_json_and_say_what_was_refused():
    def plain(q, k, v):
        return ours(q, k, v)

    report = mha.conform(plain, level="smoke")
    assert report.passed
    told = json.loads(json.dumps(report.to_dict()))
    assert told["suite"] == "mha-conform 1.2" and told["failed"] == 0 and told["refused"] == len(report.refused) > 50
    assert "is_causal" in str(report.refusals())
    sure = mha.conform(plain, level="smoke", has={"causal"})
    assert not sure.passed and "TypeError" in str(sure)


class Page(html.parser.HTMLParser):
    """Which elements a page has, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.addresses = collections.Counter(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.addresses += [value for name, value in attrs if name in ("src", "href", "onload", "onerror")]
        if ("name", "viewport") in attrs:
            self.viewport = dict(attrs)["content"]

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)


def test_a_page_says_what_failed_and_why():
    report = mha.conform(kernel("causal-plus-1"), has="causal", level="smoke")
    page = Page(report.to_html())
    words = "".join(page.words)
    for result in report.failed:
        assert result.case in words and result.because.split(", or ")[0] in words
        assert not result.names or str(result.diagnosis.matches[0]) in words
    assert str(report).splitlines()[-1] in words and page.tags["pre"] == 3 and "kernel(q, k, v" in words
    right = mha.conform(ours, has="causal", level="smoke")
    page = Page(right.to_html())
    assert page.tags["pre"] == 0 and "passed" in page.words and "Failed" not in page.words
    assert page.viewport == "width=device-width, initial-scale=1" and "ours " in page.words
    assert page.tags["tr"] >= len(right.results)


def test_nothing_a_kernel_says_becomes_markup():
    def hostile(q, k, v):
        raise ValueError("<script src=//x>\x1b[2J</script><img onerror=x>")

    report = mha.conform(hostile, has=(), level="smoke")
    text = report.to_html()
    page = Page(text)
    assert not page.tags["script"] and not page.tags["img"] and page.addresses == [] and "\x1b" not in text
    assert "<script src=//x>" in "".join(page.words)


@pytest.mark.parametrize("bug", ["", "scale"])
def test_a_badge_counts_the_right_answers(bug):
    report = mha.conform(kernel(bug), has="causal", level="smoke")
    root = xml.etree.ElementTree.fromstring(report.badge())
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    right = sum(result.outcome == "passed" for result in report.results)
    assert words == ["mha-conform 1.2", f"{right} of {len(report.results)}, float32"]
    assert (right == len(report.results)) == (not bug)


def test_a_shape_that_is_none_fails():
    report = mha.conform(lambda q, k, v: ours(q, k, v)[..., :-1], has=(), level="smoke")
    assert not report.passed and "expected shape" in report.failed[0].reason


def test_a_failure_is_saved_as_a_case(tmp_path):
    report = mha.conform(kernel("causal-plus-1"), has="causal", level="smoke", only="causal.")
    path = tmp_path / "case.safetensors"
    report.save(report.failed[0].case, path)
    assert mha.check(path).failed
    assert mha.diagnose(path).names == ["causal-plus-1"]


@pytest.mark.parametrize("bug, only, names, shapes", [
    ("causal-plus-1", "causal.q33", ("causal-plus-1",), ((1, 1, 2, 1), (1, 1, 2, 1))),
    ("maximum-from-0", "deep.q17", None, ((1, 1, 1, 1), (1, 1, 1, 1))),
    ("sinks-missing", "sinks-causal.b2", ("sinks-missing",), ((1, 1, 1, 1), (1, 1, 1, 1)))])
def test_a_failure_is_made_small(bug, only, names, shapes, tmp_path):
    report = mha.conform(kernel(bug), has=EVERY, level="smoke", only=only)
    small = report.reduce(report.failed[0].case)
    assert (small.q.shape, small.k.shape) == shapes, small
    assert names is None or set(names) <= set(small.names), small
    small.save(tmp_path / "small.safetensors")
    assert mha.check(tmp_path / "small.safetensors").failed
    with pytest.raises(AssertionError, match="output differs"):
        exec(small.script, {"kernel": kernel(bug)})
    exec(small.script, {"kernel": ours})
    assert len(small.script.splitlines()) <= 10


def arrays_in(value):
    """The arrays of an argument: itself, and those of Rope, Bias and Relative."""
    if hasattr(value, "shape"):
        return [value]
    return [x for x in vars(value).values() if hasattr(x, "shape")] if hasattr(value, "__dataclass_fields__") else []


@pytest.mark.needs("torch")
@pytest.mark.parametrize("layout, plain", [("BHTD", mha.scaled_dot_product_attention), ("BTHD", flash)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_array_of_a_question_is_of_the_kind_that_was_asked_for(layout, plain, dtype):
    import torch

    seen = set()

    def kernel(*inputs, **said):
        found = [x for value in (*inputs, *said.values()) for x in arrays_in(value)]
        assert all(isinstance(x, torch.Tensor) for x in found), [type(x) for x in found]
        seen.update(name for name, value in said.items() if arrays_in(value))
        if {"past_key", "page_table"} & set(said):
            raise NotImplementedError("caches, pages")
        return plain(*inputs, **said)

    report = mha.conform(kernel, layout=layout, arrays="torch", dtype=dtype, level="smoke")
    assert report.passed and not any("AssertionError" in result.reason for result in report.refused), report
    mask, alibi = ("attn_mask", "alibi") if layout == "BHTD" else ("mask", "alibi_slopes")
    assert seen >= {mask, alibi, "lengths", "sinks", "key_padding", "query_padding", "q_segments", "cu_seqlens_q",
                    "key_lists", "blocks", "bias_k", "position_bias", "relative", "rope", "q_norm", "past_key",
                    "page_table", "page_lengths"}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.needs(kind)) for kind in ("torch", "jax")])
@pytest.mark.parametrize("only, word", [("bool-mask-heads.b2", "attn_mask"), ("sinks-lengths.b2", "sinks"),
                                        ("bias.b2-h4-kv4-q9", "position_bias"), ("cache-lengths.b2", "past_key")])
def test_a_small_failure_is_of_the_kind_that_was_asked_for(kind, only, word):
    module = importlib.import_module(kind)
    expected = module.Tensor if kind == "torch" else module.Array

    def wrong(q, k, v, **said):
        found = [x for x in (q, k, v, *arrays_in(said[word]))]
        assert all(isinstance(x, expected) for x in found), [type(x) for x in found]
        return np.zeros((*q.shape[:3], v.shape[3]), "f4") + 9

    report = mha.conform(wrong, arrays=kind, level="smoke", only=only)
    small = report.reduce(report.failed[0].case)
    with pytest.raises(AssertionError, match="output differs"):
        exec(small.script, {"kernel": wrong})
    assert len(small.script.splitlines()) <= 10


@pytest.mark.needs("torch")
def test_masks_of_an_invariance_are_of_the_kind_that_was_asked_for():
    import torch

    def kernel(*inputs, attn_mask=None, **said):
        assert attn_mask is None or isinstance(attn_mask, torch.Tensor)
        return torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask, **said)

    found = testing.invariant(kernel, under=["padding", "chunks"], arrays="torch", lengths=(17,))
    assert found.passed and all(x.outcome != "refused" for x in found.found.values()), found


def test_what_one_row_shows_in_a_long_call_is_made_small():
    """A tile of 32 keys whose maximum is greater: one query, one key and one value of 33 are left."""
    def tiled(q, k, v):
        top = np.full((*q.shape[:3], 1), -1e30, np.float32)
        total, out = np.zeros_like(top), np.zeros((*q.shape[:3], v.shape[3]), np.float32)
        for start in range(0, k.shape[2], 32):
            s = q @ k[:, :, start:start + 32].swapaxes(2, 3) / np.sqrt(np.float32(q.shape[3]))
            new = np.maximum(top, s.max(-1, keepdims=True))
            p = np.exp(s - new)
            out = out + p @ v[:, :, start:start + 32]
            total, top = total * np.exp(top - new) + p.sum(-1, keepdims=True), new
        return out / total

    report = mha.conform(tiled, has=(), level="smoke", only="plain.q33")
    small = report.reduce(report.failed[0].case)
    assert small.q.shape[2] == small.k.shape[2] == 33 and small.q.shape[:2] == (1, 1), small
    assert all(x.any(-1).sum() == 1 for x in (small.q, small.k, small.v)), small
    assert len(small.script) < 500 and small.names, small.script
    assert {name.split()[0] for name in small.names} == {"tile-values-not-rescaled"}, small
    assert f"gives {small.names[0]} or {len(small.names) - 1} more" in str(small), small
    with pytest.raises(AssertionError, match="output differs"):
        exec(small.script, {"kernel": tiled})


def test_a_small_failure_has_no_name_that_the_whole_does_not_have():
    def narrow(q, k, v, **_):
        """The last 4 features are no part of a score."""
        width, scale = max(q.shape[3] - 4, 0), 1 / np.sqrt(np.float32(q.shape[3]))
        s = q[..., :width] @ k[..., :width].swapaxes(2, 3) * scale
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ v

    report = mha.conform(narrow, has=(), level="smoke")
    assert report.failed
    for result in report.failed:
        small = report.reduce(result.case)
        whole = {name.split()[0] for name in result.names}
        assert not whole or {name.split()[0] for name in small.names} <= whole, (result, small)
    assert any("features-scored" in name for result in report.failed for name in result.names), report


def test_any_head_may_be_the_one_that_is_left():
    """Wrong in the last one of four alone, which its sink tells."""
    last = []

    def wrong(q, k, v, sinks=None, **said):
        sinks = np.asarray(sinks)
        last.append(sinks[-1])
        return ours(q, k, v, sinks=sinks, **said) + (sinks == last[0]).astype("f4")[:, None, None]

    report = mha.conform(wrong, has="sinks gqa", level="smoke", only="sinks.b2-h4-q9")
    small = report.reduce(report.failed[0].case)
    assert small.q.shape[:2] == small.k.shape[:2] == (1, 1), small
    assert np.asarray(small.settings["sinks"]).tolist() == [last[0]], small
    with pytest.raises(AssertionError, match="output differs"):
        exec(small.script, {"kernel": wrong})


def test_widths_that_must_be_one_are_made_small():
    def one_width(q, k, v, **said):
        if q.shape[3] != v.shape[3]:
            raise ValueError("widths differ")
        return kernel("scale")(q, k, v, **said)

    report = mha.conform(one_width, has=(), level="smoke", only="plain.q17")
    small = report.reduce("plain.q17-s17")
    assert small.q.shape[3] == small.v.shape[3] <= 2, small


def test_a_small_failure_keeps_to_the_convention():
    def wrong(q, k, v, **said):
        return kernel("bottom-right")(q, k, v, **said) * np.float32(1.01 if q.shape[2] >= 5 else 1)

    report = mha.conform(wrong, has="causal cross", level="smoke", conventions={"alignment": "bottom-right"},
                         only="causal-cross.q5-s9")
    small = report.reduce("causal-cross.q5-s9")
    assert small.q.shape[2] == 5 and small.checked["offset"] == "bottom-right", small
    assert report.reduce("probe-lse") is None


@pytest.mark.parametrize("said, error, words", [
    ({"has": "causl"}, ValueError, "causl"), ({"level": "huge"}, ValueError, "smoke, full, large"),
    ({"conventions": {"empty": "none"}}, mha.InvalidError, "zero, nan, mean"),
    ({"only": "nothing"}, ValueError, "only"),
    ({"dtype": "float64"}, TypeError, "dtype"), ({"arrays": "mlx"}, ValueError, "numpy, torch, jax, cupy"),
    ({"layout": "HTDB"}, ValueError, "layout")])
def test_bad_requests_are_told(said, error, words):
    with pytest.raises(error, match=words):
        mha.conform(ours, **said)


def test_a_kernel_is_a_function():
    with pytest.raises(TypeError, match="^kernel: expected a default of is_causal, found none; mha passes only"):
        mha.conform(lambda q, k, v, is_causal: q, level="smoke")
    with pytest.raises(TypeError, match="kernel"):
        mha.conform(None)


# ---------------------------------------------------------------- invariances


def test_our_own_invariances():
    found = testing.invariant(ours, lengths=(1, 17, 65))
    assert found.passed, found
    for name in ("runs", "batch", "place", "padding", "chunks", "decode", "groups", "heads", "values", "strides"):
        assert found.found[name].outcome == "bitwise", found
    assert not testing.invariant(ours, under="keys", lengths=(65,), bitwise=True).passed


def in_pages(q, k, v, page_table=None, page_lengths=None, is_causal=False, change=None):
    """Pages of (B, h, T, d) queries; `change` of the table and the lengths is a bug."""
    if page_table is None:
        return ours(q, k, v, is_causal=is_causal)
    table, lengths = change(page_table, page_lengths) if change else (page_table, page_lengths)
    return mha.paged_attention(q, k, v, table, lengths, causal=is_causal)


def test_pages_are_as_if_keys_lay_side_by_side():
    for dtype in ("float32", "float16"):
        found = testing.invariant(in_pages, under=["pages"], lengths=(1, 15, 16, 17, 50), dtype=dtype)
        assert found.found["pages"].outcome == "bitwise", found

    def rows_first(q, k, v, **said):
        return in_pages(q.swapaxes(1, 2), *((k, v) if "page_table" in said else (k.swapaxes(1, 2), v.swapaxes(1, 2))),
                        **said).swapaxes(1, 2)

    assert testing.invariant(rows_first, under="pages", lengths=(17,), layout="BTHD").passed
    assert "pages" not in testing.invariant(ours, lengths=(1,)).found


@pytest.mark.parametrize("change", [
    lambda table, lengths: (table[:, ::-1].copy(), lengths), lambda table, lengths: (table[[1, 0, 2]], lengths),
    lambda table, lengths: (table, lengths - 1)])
def test_wrong_pages_are_violated(change):
    found = testing.invariant(lambda *inputs, **said: in_pages(*inputs, **said, change=change), under=["pages"],
                              lengths=(33,))
    assert found.found["pages"].outcome == "violated", found


def nudged(x, condition):
    return np.nextafter(x, np.inf, dtype=x.dtype) if condition else x


def test_one_ulp_is_told_and_where_it_begins():
    def other_from_97(q, k, v, **said):
        return nudged(ours(q, k, v, **said), q.shape[2] == 1 and k.shape[2] >= 97)

    found = testing.invariant(other_from_97, under=["decode"], lengths=(64, 128)).found["decode"]
    assert found.outcome == "within the bound" and found.worst.ulps == 1
    assert found.begins == 97
    assert "1 ULP" in found.sentence and "from length 97 on" in found.sentence


@pytest.mark.parametrize("under, wrong", [
    ("batch", lambda q, k, v, **x: ours(q, k, v, **x) * np.float32(1.01 if len(q) == 1 else 1)),
    ("place", lambda q, k, v, **x: ours(q, k, v, **x) * np.arange(1, 4, dtype=np.float32)[:, None, None, None]),
    ("padding", lambda q, k, v, attn_mask=None, **x: ours(q, k, v)),
    ("chunks", lambda q, k, v, attn_mask=None, **x: ours(q, k, v, is_causal=True)),
    ("decode", lambda q, k, v, is_causal=False: ours(q, k, v)),
    ("groups", lambda q, k, v, enable_gqa=False: ours(q, k[:, [0, 1, 0, 1]] if enable_gqa else k,
                                                      v[:, [0, 1, 0, 1]] if enable_gqa else v)),
    ("heads", lambda q, k, v: ours(q, k, v) + np.arange(4, dtype=np.float32)[:, None, None]),
    ("keys", lambda q, k, v: ours(q, k, v, is_causal=True)),
    ("shift", lambda q, k, v: ours(q, np.maximum(k, 0), v)),
    ("values", lambda q, k, v: ours(q, k, np.minimum(v, 2))),
    ("strides", lambda q, k, v: ours(q, k, v if v.flags.c_contiguous else v * 2)),
    ("splits", lambda q, k, v, num_splits: ours(q, k, v) * np.float32(num_splits))])
def test_what_is_not_invariant_is_violated(under, wrong):
    found = testing.invariant(wrong, under=under, lengths=(17, 33))
    assert not found.passed and found.found[under].outcome == "violated", found


def test_threads_are_set():
    now = [0]

    def wrong(q, k, v):
        return ours(q, k, v) * np.float32(now[0])

    with pytest.raises(TypeError, match="set_threads"):
        testing.invariant(wrong, under="threads")
    found = testing.invariant(wrong, under="threads", lengths=(5,), set_threads=lambda n: now.__setitem__(0, n))
    assert found.found["threads"].outcome == "violated"


def test_what_a_kernel_cannot_do_is_refused_and_nothing_passes():
    def nothing(q, k, v, **said):
        raise NotImplementedError("soon")

    found = testing.invariant(nothing, under=["runs"])
    assert not found.passed and found.found["runs"].outcome == "refused" and "soon" in found.found["runs"].sentence
    with pytest.raises(ValueError, match="under"):
        testing.invariant(ours, under="luck")


def side_by_side(q, k, v, said, layout):
    """Keys and values out of their pages, one by one."""
    if "page_table" not in said:
        return q, k, v
    table, rows, most = said["page_table"], k.shape[1], max(said["page_lengths"])
    found = [np.stack([[x[table[b, j // rows], j % rows] if j < n else np.zeros(x.shape[2:], x.dtype)
                        for j in range(most)] for b, n in enumerate(said["page_lengths"])]) for x in (k, v)]
    return (q, *(x.swapaxes(1, 2) if layout == "BHTD" else x for x in found))


def checked(q, said, layout):
    """The settings of a call whose keys lie side by side."""
    others = {n: x for n, x in said.items() if n not in ("return_lse", "page_table", "page_lengths")}
    if "page_table" in said:
        others["lengths"] = said["page_lengths"]
        others["offset"] = said["page_lengths"] - q.shape[2 if layout == "BHTD" else 1]
    return others


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
@pytest.mark.parametrize("bug, only, names, shapes", [
    ("table-transposed", "pages.b2", (), {"page_table": (2, 2)}),
    ("sequences-joined", "varlen-causal", ("sequences-joined",), {"cu_seqlens_q": (3,)}),
    ("lists-short", "lists.b2", (), {"key_lists": (1, 1, 3, 2)}),
    ("blocks-ignored", "blocks.b2", ("blocks-missing",), {"blocks": (1, 1, 2, 1)}),
    ("segments-ignored", "segments.b2", ("segments-missing",), {"q_segments": (1, 4)})])
def test_bugs_in_parts_of_a_call_are_made_small(bug, only, names, shapes, layout, tmp_path):
    def wrong(q, k, v, **said):
        if bug == "table-transposed":
            table = said["page_table"]
            said["page_table"] = table.T.reshape(table.shape)
        if bug == "sequences-joined":
            del said["cu_seqlens_q"]
        if bug == "lists-short":
            said["key_lists"] = said["key_lists"][..., :max(said["key_lists"].shape[-1] - 1, 1)]
        if bug == "blocks-ignored":
            del said["blocks"], said["blocks_kind"], said["block_size"]
        if bug == "segments-ignored":
            del said["q_segments"]
        meant = mha.core.reference.Meant(*side_by_side(q, k, v, said, layout), None, layout, checked(q, said, layout))
        return np.array(meant.exact(["lse"])[0], np.float32)

    report = mha.conform(wrong, layout=layout, level="smoke", only=only)
    assert report.failed
    small = report.reduce(report.failed[0].case)
    assert {name: small.settings[name].shape for name in shapes} == shapes and set(names) <= set(small.names), small
    small.save(tmp_path / "small.safetensors")
    assert mha.check(tmp_path / "small.safetensors").failed
    with pytest.raises(AssertionError, match="output differs"):
        exec(small.script, {"kernel": wrong})
    assert len(small.script.splitlines()) <= 10


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
@pytest.mark.parametrize("only", ["rope-cache.b2", "alibi-cache", "bias-cache", "relative-distance-cache",
                                  "cache-lengths.b2", "rope.b2-h4-kv4-q9", "relative.b2-h4-kv4-q9", "lse-causal",
                                  "varlen.", "varlen-window", "segments.b2", "segments-causal", "query-padding.b2",
                                  "lists.b2", "blocks.b2", "pages.b2", "pages-deep"])
def test_failures_of_calls_with_more_parts_are_made_small(only, layout, tmp_path):
    """Failed in one place: lse where that is asked for, else the output."""
    def off(q, k, v, **said):
        meant = mha.core.reference.Meant(*side_by_side(q, k, v, said, layout), None, layout, checked(q, said, layout))
        output, stages = meant.exact(["lse"])
        output = np.array(output, np.float32)
        if "return_lse" in said:
            return output, np.array(stages["lse"], np.float32) + np.float32(0.25)
        output[..., -1] += np.float32(0.5)
        return output

    report = mha.conform(off, layout=layout, level="smoke", only=only)
    assert report.failed
    for result in report.failed:
        small = report.reduce(result.case)
        assert small is not None, result.case
        assert small.q.shape[0] == 1 and small.q.size <= 32 and small.v.size <= 4, (result.case, small)
        assert ("lse = kernel" in small.script) == ("return_lse" in small.settings)
        small.save(tmp_path / "small.safetensors")
        assert mha.check(tmp_path / "small.safetensors").failed
        with pytest.raises(AssertionError, match="differs"):
            exec(small.script, {"kernel": off})


@pytest.mark.needs("jsonschema")
def test_reports_obey_their_schema_and_are_strict_json():
    from jsonschema import Draft202012Validator

    def strange(q, k, v, is_causal=False):
        out = kernel("causal-plus-1")(q, k, v, is_causal=is_causal)
        return np.full_like(out, np.nan) if q.shape[2] == 9 else out

    def strict(name):
        raise AssertionError(f"{name} is no JSON")

    report = mha.conform(strange, has="causal", level="smoke")
    told = json.loads(json.dumps(report.to_dict()), parse_constant=strict)
    schema = mha.Report.schema()
    validator = Draft202012Validator(schema)
    validator.check_schema(schema)
    assert not list(validator.iter_errors(told)) and any(x["max_abs"] is None for x in told["results"])
    for at, other in (("outcome", "perhaps"), ("regime", "calm"), ("needs", ["luck"]), ("max_abs", -1), ("clues", 3)):
        wrong = json.loads(json.dumps(told))
        wrong["results"][0][at] = other
        assert list(validator.iter_errors(wrong)), at
    assert list(validator.iter_errors({**told, "verdict": "passed"}))
    assert list(validator.iter_errors({name: value for name, value in told.items() if name != "suite"}))


def test_a_page_draws_which_rows_differ():
    report = mha.conform(kernel("causal-plus-1"), has="causal", level="smoke")
    result = next(result for result in report.failed if result.case == "causal.b2-h4-q9-s9"
                  or result.rows is not None and result.rows.shape[2] > 4)
    wrong = result.rows > 1  # the last row sees every key with and without the bug
    assert wrong[..., :-1].any() and not wrong[..., -1].any() and np.isfinite(result.rows).all()
    assert (result.rows.max() == pytest.approx(result.max_abs / result.atol)) == (result.rtol == 0)
    page = Page(report.to_html())
    heads, queries = result.rows.shape[1:]
    assert f"head 0 to {heads - 1} ↓, query 0 to {queries - 1} →" in page.text
    assert page.tags["svg"] >= result.rows.shape[0] and "Which rows differ" in page.text
    assert "Which rows differ" not in Page(mha.conform(kernel(), has="causal", level="smoke").to_html()).text


# ---------------------------------------------------------------- words, and what they leave out


@pytest.mark.parametrize("has, level, why", [
    ("offset", "smoke", "offset is exercised with causal"), ({"part"}, "full", "part is exercised with causal offset"),
    ("causal prefix window_keep", "smoke", "window_keep is exercised with window")])
def test_a_word_that_nothing_exercises_is_refused(has, level, why):
    with pytest.raises(ValueError, match=f"^has: expected words that a test case of level {level} exercises; {why}"):
        mha.conform(ours, has=has, level=level)


def test_every_word_that_is_accepted_is_asked_about():
    random = np.random.default_rng(3)
    accepted = 0
    for _ in range(100):
        has = set(random.choice(list(mha.NEEDS), random.integers(1, 8), replace=False).tolist()) - {"backward"}
        try:
            rows = list(mha.conformance.conform._chosen(has, "smoke", None))
        except ValueError:
            continue
        accepted += 1
        assert has <= {need for row in rows for need in row.needs} <= has
    assert accepted > 10


@pytest.mark.parametrize("kind", [ValueError, TypeError, NotImplementedError])
def test_an_exception_on_a_plain_question_is_a_failure(kind):
    def short(q, k, v, is_causal=False):
        if q.shape[2] > 20:
            raise kind("too long")
        return ours(q, k, v, is_causal=is_causal)

    report = mha.conform(short, level="smoke")
    told = {result.case: result.outcome for result in report.results}
    lacks = kind is NotImplementedError
    assert report.passed == lacks and told["plain.q33-s33"] == ("refused" if lacks else "failed")
    assert told["causal.q33-s33"] == told["window.q33-s33"] == "refused" and told["plain.q17-s17"] == "passed"


def bottom_right(bug):
    """Causal from the bottom right, and a bug."""
    def run(q, k, v, is_causal=False):
        h, T, d, S = q.shape[1], q.shape[2], q.shape[3], k.shape[2]
        scale = np.full(h, d**-0.5, "f4")
        scale[-1] *= 4 if bug == "last head" else 1
        scores = q @ k.swapaxes(2, 3) * scale[:, None, None] * np.float32(2 if bug == "scale" else 1)
        if is_causal:
            scores = np.where(np.tri(T, S, S - T + (bug == "one more"), dtype=bool), scores, -np.inf)
        with np.errstate(all="ignore"):
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            return (weights / weights.sum(-1, keepdims=True) @ v[..., :q.shape[3]]).astype("f4")
    return run


@pytest.mark.parametrize("bug", ["last head", "scale", "one more"])
def test_a_smaller_failure_needs_no_other_words(bug):
    report = mha.conform(bottom_right(bug), has={"causal"}, level="smoke", only="causal.q17")
    for case in ("causal.q17-s17", "count.b3-h5-kv5"):
        small = report.reduce(case)
        assert small.q.shape[2] == small.k.shape[2] and small.q.shape[3] == small.v.shape[3], small
        assert "offset" not in small.checked and "offset=" not in small.script and (small.names or small.note), small


@pytest.mark.parametrize("layout", ["BHTD", "BTHD"])
def test_cases_are_those_of_conform(layout):
    """Every test case runs on the reference of its layout, under the names that conform reports."""
    kernel = mha.scaled_dot_product_attention if layout == "BHTD" else flash
    has, said = {"causal", "gqa", "window"}, []
    for case in mha.test_cases(layout=layout, level="smoke", has=has):
        assert set(case.needs) <= has and kernel(*case.inputs, **case.settings).shape[0] == case.inputs[0].shape[0]
        said.append(case.name)
    report = mha.conform(kernel, layout=layout, level="smoke", has=has)
    assert [result.case for result in report.results] == said and len(said) > 10
