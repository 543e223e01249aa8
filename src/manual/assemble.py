"""Puts the manual's sources together for Sphinx: assemble.py FOLDER PROGRAM.

Pages of src/manual and the project's other pages are copied side by side, so that each says what it says once. Links
between them go on to work; a link to a file that is no page becomes its name. In a page

    ```{include} ../../README.md         becomes a part of another page, or a file of C or Python as code;
    :from: ## What it computes           from this line on, or behind the word of a comment;
    :to: ## A tour                       up to these words; with `:with: it` the first line is put in, too
    ```
    ```{made} settings                   becomes a table that the library lists, or what the program says
    ```
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator, Optional

import headers

import mha
from mha.core.library import lib
from mha.core.settings import ROWS

OWN = Path("src/manual")
# Pages of the project that are pages of the manual, too: where they lie, and where they come to lie.
OTHERS = {
    "src/python/README.md": "reference/python-guide.md",
    "src/verify/case/CASES.md": "reference/cases.md",
    "src/verify/bugs/BUGS.md": "reference/bugs.md",
    "src/verify/conform/SUITE.md": "reference/suite.md",
    "src/models/architectures/README.md": "reference/architectures.md",
    "weights/README.md": "reference/weights.md",
    "src/verify/power/POWER.md": "explanation/power.md",
    "src/split/README.md": "explanation/split.md",
    "bench/README.md": "explanation/speed.md",
    "bench/ACCURACY.md": "explanation/accuracy.md",
    "bench/LIMITS.md": "explanation/limits.md",
    "src/README.md": "project/rooms.md",
    "tests/README.md": "project/tests.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "LICENSE": "project/license.md",
}
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"```\{(\w+)\} (\S+)\n((?:.*\n)*?)```\n")


def cell(text: Optional[bytes], code: bool = False) -> str:
    """A cell of a table of Markdown."""
    words = (text or b"").decode() if not isinstance(text, str) else text
    words = words.replace("|", "\\|") if code else re.sub(r"([\\*_`<>|$\[\]])", r"\\\1", words)
    return f"`{words}`" if code and words else words


def table(titles: str, rows: Iterator[list[str]]) -> str:
    """A table of Markdown; titles are divided by blanks."""
    lines = [titles.split(), ["---"] * len(titles.split()), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows_of(at: Callable[[int], object]) -> Iterator[object]:
    """The rows of a table of the library."""
    index = 0
    while pointer := at(index):
        yield pointer.contents  # type: ignore[attr-defined]
        index += 1


def settings() -> str:
    """The table of settings, a table for each group."""
    text = ""
    for group, title in enumerate(mha.core.abi.ENUMS["mha_setting_group"][:-1]):
        words = {"PLACE": "Where rows stand", "QKV": "What is done to q, k and v", "VISIBLE": "Which keys a query sees",
                 "ADDED": "What is added to scores", "SOFTMAX": "How scores become weights"}
        text += f"\n## {words[title.removeprefix('MHA_SETTINGS_')]}\n\n"
        text += table("setting meaning default field", (
            [cell(row.name, True), cell(row.meaning) + "".join(
                f"; {what} {cell(given, True)}" for what, given in (("words", words_of(row)), ("shape", row.shape),
                                                                  ("needs", row.needs)) if given),
             cell(row.unset), cell(row.field, True)]
            for row in rows_of(lib.mha_setting_at) if row.group == group))
    return text


def words_of(row: object) -> str:
    """The words of a choice."""
    return " ".join(ROWS[row.name.decode()].words)  # type: ignore[attr-defined]


def made(what: str, program: str) -> str:
    """A table that the library lists, or what the program says."""
    if what == "settings":
        return settings()
    if what == "bugs":
        return "".join(f"- `{row.name.decode()}`: {row.help.decode()}\n" for row in rows_of(lib.mha_bug_at))
    if what == "weights":
        return table("weight shape word meaning", ([cell(r.name, True), cell(r.symbol), cell(r.word, True),
                                                    cell(r.meaning)] for r in rows_of(lib.mha_weight_at)))
    if what == "stages":
        rows = sorted(rows_of(lib.mha_stage_at), key=lambda r: (r.step < 0, r.step))
        return table("stage shape meaning", ([cell(r.name, True), cell(r.shape), cell(r.meaning)] for r in rows))
    if what == "backwards":
        return table("stage shape meaning", ([cell(r.name, True), cell(lib.mha_stage_at(r.like).contents.shape),
                                              cell(r.meaning)] for r in rows_of(lib.mha_backward_stage_at)))
    if what == "types":
        codes = mha.core.abi.ENUMS["mha_dtype"][:-1]
        return " ".join(f"`{lib.mha_dtype_name(i).decode()}`" for i, _ in enumerate(codes)) + "\n"
    if what == "presets":
        return said(program, "params", "--preset", "list")
    if what == "topics":
        names = re.search(r'explained by "mha help TOPIC"\n(.*)', said(program, "help"))
        assert names
        return "\n".join(f"## {name}\n\n{said(program, 'help', name)}" for name in names[1].split())
    if what == "architectures":
        return said(program, "help", "architectures")
    if what == "commands":
        page = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", "src/cli/mha.1"], check=True, text=True,
                              capture_output=True).stdout
        page = re.sub(r'<table class="(head|foot)">.*?</table>|</?(section|div)[^>]*>', "", page, flags=re.S)
        parts = re.split(r"<h([12])[^>]*>(?:<a[^>]*>)?(.*?)(?:</a>)?</h\1>", page, flags=re.S)
        texts = ("#" * (int(level) + 1) + f" {' '.join((title.capitalize() if level == '1' else title).split())}\n\n" +
                 (f"```{{raw}} html\n{text}\n```\n\n" if text.strip() else "")
                 for level, title, text in zip(parts[1::3], parts[2::3], parts[3::3]))
        return "".join(texts)
    if what == "headers":
        lines = [(header.name, header.comment.split("\n\n")[0].split("\n")[0]) for header in HEADERS.headers]
        return table("header declares", ([f"[`mha/{name}`](c/{name.removesuffix('.h')}.rst)",
                                          cell(text.removeprefix("Laboratory. "))] for name, text in lines)) + \
            "\n```{toctree}\n:hidden:\n\n" + "\n".join(f"c/{name.removesuffix('.h')}" for name, _ in lines) + "\n```\n"
    if what == "python":
        return python_page()
    raise SystemExit(f"assemble.py: nothing is made of the name {what}")


def said(program: str, *words: str) -> str:
    """What the program says, as a block of plain text."""
    text = subprocess.run([program, *words], check=True, text=True, capture_output=True).stdout
    return f"```text\n{text.strip()}\n```\n"


# Tables of the module that are not functions, with what they hold.
TABLES = {
    "mha.NEEDS": "What a kernel may have, of all that a question of the conformance suite may need, and what it means.",
    "mha.testing.INVARIANCES": "What must not change a kernel's result, by name, and how it is asked.",
    "mha.testing.BUGS": "The known bugs of a backward: rows of name and help.",
}


def python_page() -> str:
    """Directives for every public name of the module."""
    def directive(kind: str, name: str, *options: str) -> str:
        return "\n".join([f".. auto{kind}:: {name}", *(f"   :{option}:" for option in options), "", ""])

    names = [name for name in mha.__all__ if name not in ("SETTINGS", "__version__", "testing", "transformers")]
    of_kind = {
        "Functions": [n for n in names if callable(getattr(mha, n)) and not isinstance(getattr(mha, n), type)],
        "Classes": [n for n in names if isinstance(getattr(mha, n), type) and not n.endswith("Error")],
        "Errors": [n for n in names if n.endswith("Error")],
    }
    text = ""
    for title, found in of_kind.items():
        text += f"{title}\n{'-' * len(title)}\n\n"
        for name in found:
            text += directive("function", f"mha.{name}") if title == "Functions" else directive(
                "class" if title == "Classes" else "exception", f"mha.{name}", "members", "show-inheritance")
    text += "In a test\n---------\n\n"
    for name in mha.testing.__all__:
        if isinstance(getattr(mha.testing, name), type):
            text += directive("class", f"mha.testing.{name}", "members", "show-inheritance")
        elif f"mha.testing.{name}" not in TABLES:
            text += directive("function", f"mha.testing.{name}")
    text += "In models of transformers\n-------------------------\n\n"
    text += "".join(directive("function", f"mha.transformers.{name}") for name in mha.transformers.__all__)
    text += "Tables\n------\n\n"
    text += "".join(f".. py:data:: {name}\n\n   {meaning}\n\n" for name, meaning in TABLES.items())
    return f"```{{eval-rst}}\n{text}```\n"


class Assembly:
    """The pages as they are copied: where each comes from, and where it lies in the end."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.program = folder, program
        own = {str(path): str(path.relative_to(OWN)) for path in sorted(OWN.rglob("*.md"))}
        self.places = {**own, **OTHERS}
        self.places.update({f"include/mha/{header.name}": f"reference/c/{header.name.removesuffix('.h')}.rst"
                            for header in HEADERS.headers})

    def write(self) -> None:
        """Writes all of them."""
        for source, place in self.places.items():
            if source.endswith(".h"):
                header = next(h for h in HEADERS.headers if h.name == Path(source).name)
                self.put(place, HEADERS.page(header))
            else:
                text = self.moved(Path(source).read_text(encoding="utf-8"), source, place)
                self.put(place, f"# Licence\n\n{text}" if source == "LICENSE" else text)

    def put(self, place: str, text: str) -> None:
        """Writes one file."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def moved(self, text: str, source: str, place: str) -> str:
        """A page at its new place: its parts and tables put in, its links turned there."""
        text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
        turned = LINK.sub(lambda found: self.link(found, source, place), text)
        return FENCE.sub(lambda found: self.block(found, source, place), turned)

    def block(self, found: "re.Match[str]", source: str, place: str) -> str:
        """What stands in place of a block."""
        kind, name, body = found.groups()
        if kind == "made":
            return made(name, self.program)
        if kind != "include":
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), name))
        text = Path(path).read_text(encoding="utf-8")
        options = dict(re.findall(r":(\w+): (.*)\n", body))
        if "from" in options:
            begin = text.index(options["from"])
            text = text[begin if options.get("with") else text.index("\n", begin) + 1:]
        text = text[:text.index(options["to"])] if "to" in options else text
        if options.get("as") == "text":
            lines = (re.sub(r"^(/\*| \*) ?", "", line).rstrip() for line in text.strip("\n").split("\n"))
            return "```text\n" + "\n".join(lines).strip("\n") + "\n```\n"
        if path.endswith((".c", ".py")):
            return f"```{'c' if path.endswith('.c') else 'python'}\n{text.strip()}\n```\n"
        return self.moved(text, path, place).strip("\n") + "\n"

    def link(self, found: "re.Match[str]", source: str, place: str) -> str:
        """A link of `source` as it reads at `place`."""
        picture, words, target = found.groups()
        path, _, anchor = target.partition("#")
        if ":" in path or not path:
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if picture:
            if not Path(path).exists():  # made beside the pages
                path = os.path.relpath(path, OWN)
            else:
                self.put_file(path)
                path = f"pictures/{Path(path).name}"
            return f"![{words}]({os.path.relpath(path, os.path.dirname(place))})"
        if path == "README.md":
            path, anchor = str(OWN / "index.md"), ""
        if path not in self.places:
            return words
        there = os.path.relpath(self.places[path], os.path.dirname(place))
        return f"[{words}]({there}{'#' + anchor if anchor else ''})"

    def put_file(self, path: str) -> None:
        """Copies a picture."""
        (self.folder / "pictures").mkdir(parents=True, exist_ok=True)
        shutil.copy(path, self.folder / "pictures")


if __name__ == "__main__":
    HEADERS = headers.read_headers(Path("include/mha"))
    Assembly(Path(sys.argv[1]), sys.argv[2]).write()
