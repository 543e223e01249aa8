"""Traces: what a file of stages becomes, and what a notebook is shown."""
import html
import os
import re
import subprocess
from html.parser import HTMLParser

import mha
import numpy as np
import pytest
from conftest import ROOT
from mha.core import pictures

R = np.random.default_rng(8)


class Page(HTMLParser):
    """Tags and attributes of a page; unbalanced tags are refused."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "path":
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(trace):
    """The page within the frame."""
    frame = Page(trace._repr_html_())
    assert frame.tags == ["iframe"] and not frame.text and ("sandbox", None) in frame.attributes
    return Page(dict(frame.attributes)["srcdoc"])


def test_a_file_of_the_program(tmp_path):
    program = os.path.join(os.path.dirname(os.environ["MHA_LIBRARY"]), "mha")
    model = f"{ROOT}/weights/lookup/model.safetensors"
    x = R.standard_normal((2, 12, 48)).astype("f4")
    mha.save(tmp_path / "x.npy", {"x": x})
    subprocess.run([program, "forward", "--weights", model, "--input", f"{tmp_path}/x.npy", "--heads", "6", "--causal",
                    "--trace", f"{tmp_path}/trace.safetensors", "--quiet"], check=True, capture_output=True)
    trace = mha.Trace.load(tmp_path / "trace.safetensors")
    kept = mha.MultiHeadAttention.from_file(model, n_heads=6)(x, causal=True, return_stages=list(trace))[1]
    assert {"q", "weights", "heads", "output"} < set(trace) and list(trace) == list(kept)
    assert trace["weights"].shape == (2, 6, 12, 12)
    for (name, shape, least, most, rms, strange, _), other in zip(trace.table(), kept.table()):
        finite = trace[name][np.isfinite(trace[name])].astype("f8")
        assert shape == trace[name].shape == other[1] and strange == trace[name].size - finite.size == other[5]
        np.testing.assert_allclose((least, most, rms), (finite.min(), finite.max(), (finite**2).mean() ** 0.5))
        np.testing.assert_allclose(trace[name], kept[name], rtol=1e-4, atol=1e-4)
    page = shown(trace)
    assert page.tags.count("svg") == 12 + 2 and page.tags.count("table") == 1 and "darkest 1" in page.text


def test_pictures_are_of_the_weights():
    """The rectangles of a picture, read back, are the weights in sixteenths of the largest; more cells are pooled."""
    weights = R.random((5, 9)) ** 4
    weights[2] = 0
    found = np.zeros(weights.shape)
    drawing = pictures.heat_map(weights, "head 0")
    for opacity, path in re.findall(r'fill-opacity="([^"]+)" d="([^"]+)"', drawing):
        for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path):
            assert not found[int(y), int(x):int(x) + int(width)].any()
            found[int(y), int(x):int(x) + int(width)] = float(opacity)
    np.testing.assert_allclose(found, weights / weights.max(), atol=0.5 / 16 + 1e-6)
    wide = np.zeros((3, 1000))
    wide[1, 777] = 1
    pooled = pictures.pooled(wide)
    assert pooled.shape == (3, 64) and np.argwhere(pooled).tolist() == [[1, 777 * 64 // 1000]]
    np.testing.assert_array_equal(pictures.pooled(np.ones((65, 130))), 1)
    assert 'opacity="0"' not in drawing and Page(pictures.heat_map(weights, "<b>")).text.startswith("<b>")
    assert len(pictures.heat_map(R.random((2000, 2000)), "")) < 200_000
    for odd in (np.zeros((2, 3)), np.full((2, 3), np.nan), np.ones((1, 1)), np.full((2, 2), -1.0)):
        assert "<svg" in pictures.heat_map(odd, "")


def test_a_picture_is_what_the_program_draws(tmp_path):
    layer = mha.MultiHeadAttention(16, 2)
    _, trace = layer(R.standard_normal((1, 3, 16)).astype("f4"), return_stages=["weights"])
    trace.picture(tmp_path / "a.html", tokens=["[CLS]", "a<b", "sat"])
    (tmp_path / "tokens.txt").write_text("[CLS]\na<b\nsat\n", encoding="utf-8")
    trace.picture(str(tmp_path / "b.html"), tokens=["[CLS]", "a<b", "sat"])
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "b.html").read_text(encoding="utf-8")
    trace.picture(tmp_path / "c.html", tokens=tmp_path / "tokens.txt")
    assert page != (tmp_path / "c.html").read_text(encoding="utf-8")  # the page names the file
    trace.picture(tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    for path, tokens, said in (("a.bmp", None, "ends in .html"), ("d.html", ["one"], "a name for each of 3 keys")):
        with pytest.raises(ValueError, match=said):
            trace.picture(tmp_path / path, tokens=tokens)
    assert not (tmp_path / "d.html").exists()


def test_not_all_heads_are_drawn():
    trace = mha.Trace({"weights": R.random((3, 7, 2, 5)), "weights_mean": R.random((1, 2, 5)).astype("f2"),
                       "lse": np.zeros((3, 7, 0))})
    page = shown(trace)
    assert page.tags.count("svg") == 16 and "6 more are not drawn" in page.text
    assert "weights: batch row 2, head 1;" in page.text and "head 2, " not in page.text
    assert "svg" not in shown(mha.Trace({"weights": np.zeros((1, 1, 0, 5))})).tags and "rms" in str(trace)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"></iframe><script>alert(1)</script>', "&lt;b&gt;",
                                  "a\x1b]0;title\x07\u202e", "' onload='alert(1)"])
def test_names_of_files_are_text(tmp_path, name):
    """Whatever a tensor is called: no tag, no attribute and no escape sequence comes of it."""
    mha.save(tmp_path / "a.safetensors", {name: np.ones((2, 2), "f4"), "weights": np.ones((1, 1, 2, 2), "f4"),
                                          "ids": np.zeros(3, "i4")})
    trace = mha.Trace.load(tmp_path / "a.safetensors")
    assert list(trace) == ["weights", name]
    page = shown(trace)
    assert set(page.tags) == {"meta", "style", "table", "thead", "tbody", "tr", "th", "td", "figure", "svg", "path",
                              "figcaption"}
    assert not [key for key, _ in page.attributes if key.startswith("on")]
    plain = "".join(c if c.isprintable() else "?" for c in name)
    assert plain in page.text and plain in str(trace) and "\x1b" not in html.unescape(trace._repr_html_()) + str(trace)
