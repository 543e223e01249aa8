"""The plots of bench/: read back as XML, they hold the numbers, at the heights that the axes promise."""
import os
import sys
import xml.etree.ElementTree as ElementTree

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench"))
import plot  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def of_class(svg, name):
    return [e for e in ElementTree.fromstring(svg).iter() if e.get("class") == name]


def tick_heights(svg, parse):
    """Value -> y of each tick of the y axis, whose label stands 4 below its line."""
    labels = [e for e in ElementTree.fromstring(svg).iter(SVG + "text") if e.get("text-anchor") == "end"
              and e.get("transform") is None]
    return {parse(e.text): float(e.get("y")) - 4 for e in labels}


def test_bars_are_as_high_as_their_numbers():
    series = {"mha": {"a": 100.0, "b": 37.5}, "<other>": {"b": 62.0}}
    svg = plot.bars([("core & more", ["a", "b"], series)], "GFLOP/s")
    drawn = of_class(svg, "bar")
    assert [e.find(SVG + "title").text for e in drawn] == ["mha, a: 100 GFLOP/s", "mha, b: 37.5 GFLOP/s",
                                                           "<other>, b: 62 GFLOP/s"]
    ticks = tick_heights(svg, float)
    assert len(ticks) >= 5 and 0 in ticks
    per_unit = (ticks[0] - ticks[max(ticks)]) / max(ticks)
    for e, value in zip(drawn, [100, 37.5, 62]):
        assert float(e.get("height")) == pytest.approx(value * per_unit, abs=0.2)  # positions have one digit
        assert float(e.get("y")) + float(e.get("height")) == pytest.approx(ticks[0], abs=0.1)
    assert svg == plot.bars([("core & more", ["a", "b"], series)], "GFLOP/s")


@pytest.mark.parametrize("largest", [0.03, 1, 9.99, 640, 1e6])
def test_ticks_are_neither_few_nor_many(largest):
    assert 4 <= largest / plot.step_for(largest) <= 10


def test_lines_stand_on_logarithmic_axes():
    series = {"a<b": [(16, 0.5), (64, 4.0), (1024, 0)], "none": []}
    svg = plot.lines([("errors", "keys", series)], "ULP")
    line, = of_class(svg, "line")
    assert line.find(SVG + "title").text == "a<b"
    (x0, y0), (x1, y1) = ([float(n) for n in point.split()] for point in line.get("d")[1:].split("L"))
    ticks = tick_heights(svg, lambda text: int(text[2:]))
    assert y0 == pytest.approx(ticks[-1], abs=0.1) and y1 == pytest.approx(ticks[2], abs=0.1)
    places = {e.text: float(e.get("x")) for e in ElementTree.fromstring(svg).iter(SVG + "text")
              if e.text and e.text.isdigit()}
    assert x0 == pytest.approx(places["16"], abs=0.1) and x1 == pytest.approx(places["64"], abs=0.1)


def test_lines_stand_on_even_axes():
    svg = plot.lines([("times", "tokens", {"each": [(10, 30.0), (60, 80.0), (70, 0)]})], "us", plot.even)
    line, = of_class(svg, "line")
    (x0, y0), (x1, y1) = ([float(n) for n in point.split()] for point in line.get("d")[1:].split("L"))
    ticks = tick_heights(svg, float)
    assert y0 == pytest.approx(ticks[30], abs=0.1) and y1 == pytest.approx(ticks[80], abs=0.1)
    assert ticks[0] - ticks[20] == pytest.approx(ticks[60] - ticks[80], abs=0.1) and 0 in ticks
    places = {e.text: float(e.get("x")) for e in ElementTree.fromstring(svg).iter(SVG + "text")
              if e.get("text-anchor") == "middle" and e.text.isdigit()}
    assert x0 == pytest.approx(places["10"], abs=0.1) and x1 == pytest.approx(places["60"], abs=0.1)
