"""Draws the steps of one head side by side: make_walk.py PROGRAM OUTPUT. Every map is drawn by `mha show --stage`.

The head is number 0 of the second layer of induction/, on the text in tokens.txt. README.md shows the picture.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.sax.saxutils

FOLDER = pathlib.Path(__file__).resolve().parent / "induction"
LAYER, HEAD, QUERY, CELL = "layers.1.self_attn", 0, 20, 4  # a stage of four axes is drawn of head 0
TOKENS, WIDTH, HEADS = 32, 32, 4
RED = "#b3261e"


def maps(program, folder):
    """The drawing of each stage: those of a run; of four axes that of head 0."""
    def run(*words):
        subprocess.run([program, *map(str, words), "--quiet"], check=True)

    def drawn(stage):
        run("show", trace, "--stage", stage, "--picture", folder / "map.svg")
        text = (folder / "map.svg").read_text(encoding="utf-8")
        return re.search(r'<g transform="translate\(314 66\)">\n(.*?)\n</g>', text, re.S)[1]

    trace = folder / "trace.safetensors"
    run("forward", "--weights", FOLDER / "model.safetensors", "--layer", LAYER, "--path", "exact",
        "--input", f"{FOLDER}/recorded.safetensors:layers.1.input", "--trace", trace)
    stages = ("q", "k", "v", "masked", "weights", "heads", "output")
    return {stage: drawn(stage) for stage in stages}


class Picture:
    """Maps, arrows and captions in places given in pixels."""

    def __init__(self, width, height):
        self.lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                      f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" role="img">',
                      "<title>The steps of one head</title>", f'<rect width="{width}" height="{height}" fill="#fff"/>']

    def text(self, x, y, words, more=""):
        self.lines.append(f'<text x="{x}" y="{y}"{more}>{xml.sax.saxutils.escape(words)}</text>')

    def put(self, x, y, drawing, title, row, columns):
        """A map of 32 x 32 with a title above; the row of the query, and the columns of the head, are marked."""
        size = TOKENS * CELL
        self.text(x, y - 7, title)
        self.lines += [f'<g transform="translate({x} {y}) scale({CELL / 6:.4f})">', drawing, "</g>"]
        if columns:
            self.lines.append(f'<rect x="{x + columns[0] * CELL}" y="{y - 1}" width="{columns[1] * CELL}" '
                              f'height="{size + 2}" fill="none" stroke="{RED}" stroke-dasharray="3 2"/>')
        if row is not None:
            self.lines.append(f'<rect x="{x - 2}" y="{y + row * CELL - 1}" width="{size + 4}" height="{CELL + 2}" '
                              f'fill="none" stroke="{RED}"/>')

    def arrow(self, x, y, to_x, to_y):
        self.lines.append(f'<path d="M{x} {y}L{to_x} {to_y}" stroke="#666" fill="none" marker-end="url(#end)"/>')


def picture(of_stage, names):
    p = Picture(870, 500)
    p.lines.append('<defs><marker id="end" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7" '
                   'orient="auto"><path d="M0 0L6 3L0 6z" fill="#666"/></marker></defs>')
    own, looked_at = (HEAD * WIDTH // HEADS, WIDTH // HEADS), QUERY - TOKENS // 2 + 1
    p.put(20, 40, of_stage["q"], "q = x W_Q + b_Q", QUERY, own)
    p.put(20, 200, of_stage["k"], "k = x W_K + b_K", looked_at, own)
    p.put(20, 360, of_stage["v"], "v = x W_V + b_V", looked_at, own)
    p.put(220, 120, of_stage["masked"], "q k\u1d40 / sqrt(d_k), later keys hidden", QUERY, None)
    p.put(440, 120, of_stage["weights"], "softmax: what it looks at", QUERY, None)
    p.put(530, 360, of_stage["heads"], "heads = weights v", QUERY, own)
    p.put(710, 360, of_stage["output"], "output = heads W_O + b_O", QUERY, None)
    for place in ((150, 104, 214, 150), (150, 264, 214, 220), (354, 184, 434, 184), (152, 424, 522, 424),
                  (560, 252, 590, 340), (662, 424, 704, 424)):
        p.arrow(*place)
    p.text(600, 140, "One head of four, on the letters of", ' font-size="13"')
    p.text(600, 158, "".join(names[:TOKENS // 2 - 1]) + " written twice.", ' font-size="13"')
    p.text(600, 186, f"The red row is letter {QUERY}, the second \u201c{names[QUERY]}\u201d.", f' fill="{RED}"')
    at = f"It looks at letter {looked_at}, \u201c{names[looked_at]}\u201d: the one behind"
    p.text(600, 202, at, f' fill="{RED}"')
    p.text(600, 218, f"the first \u201c{names[QUERY]}\u201d, which comes next here, too.", f' fill="{RED}"')
    p.text(600, 240, "Dashed: the columns of this head.", ' fill="#666"')
    return "\n".join([*p.lines, "</svg>", ""])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        text = picture(maps(sys.argv[1], pathlib.Path(made)), (FOLDER / "tokens.txt").read_text().split("\n"))
    pathlib.Path(sys.argv[2]).write_text(text, encoding="utf-8")
