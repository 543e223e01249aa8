"""Holds the manual against what it is about: check.py FOLDER.

Every public function, type, field and word of C, and every public name of the module, has an entry. Every link inside
leads to a page and a place that are there. No page needs anything from elsewhere to be seen.
"""
from __future__ import annotations

import ctypes
import re
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import mha
from mha.core import declared as interface

LEFT_OUT = {"SETTINGS", "__version__", "testing", "transformers"}  # a table, a text, modules whose names are listed


class Page(HTMLParser):
    """What a page links to, loads, and can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, "str | None"]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("src", "data", "poster") or (name == "href" and tag == "link"):
                self.loads.append(value or "")
            elif name == "href" and value:
                self.links.append(value)


def entries(folder: Path) -> set[str]:
    """The names in Sphinx's inventory."""
    data = (folder / "objects.inv").read_bytes()
    text = zlib.decompress(data.split(b"\n", 4)[4]).decode("utf-8")
    names = {line.split(" ")[0] for line in text.split("\n")}
    return names | {name.rpartition(".")[2] for name in names if ".MHA_" in name}  # words of an enum


def declared() -> set[str]:
    """What the headers and the module make public."""
    names = set(interface.FUNCTIONS) | set(interface.ENUMS) | set(interface.CONSTANTS)
    for value in vars(interface).values():
        if isinstance(value, type) and issubclass(value, ctypes.Structure) and getattr(value, "c_name", ""):
            names |= {f"{value.c_name}.{field[0]}" for field in value._fields_} | {value.c_name}
    names |= set(re.findall(r"\b(mha_mpi_\w+)\(", Path("include/mha/mpi.h").read_text(encoding="utf-8")))
    names |= {f"mha.{name}" for name in mha.__all__ if name not in LEFT_OUT}
    return names | {f"mha.{module}.{name}" for module in ("testing", "transformers")
                    for name in getattr(mha, module).__all__}


def faults(folder: Path) -> list[str]:
    """What is wrong, a line each."""
    found = [f"{name}: has no entry" for name in sorted(declared() - entries(folder))]
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        for link in page.links + page.loads:
            if re.match(r"[a-z]+:|//", link):
                if link in page.loads and not link.startswith("data:"):
                    found.append(f"{path}: loads {link}")
                continue
            name, _, anchor = link.partition("#")
            there = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path.resolve()
            if not there.exists():
                found.append(f"{path}: {link}: there is no such file")
            elif anchor and there.suffix == ".html" and \
                    unquote(anchor) not in pages[folder.resolve() / there.relative_to(folder.resolve())].ids:
                found.append(f"{path}: {link}: there is no such place")
    for path in sorted(folder.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        for url in re.findall(r"url\(['\"]?([^)'\"]*)", text):
            if not url.startswith(("data:", "#")) and not (path.parent / url).exists():
                found.append(f"{path}: loads {url}, which is not there")
    return found


if __name__ == "__main__":
    root = Path(sys.argv[1]).resolve()
    wrong = faults(root)
    print("\n".join(f"check-docs: {line}" for line in wrong[:40]), file=sys.stderr, end="\n" if wrong else "")
    if not wrong:
        print(f"{len(declared())} public names have an entry; every link leads somewhere; nothing is loaded from "
              "elsewhere")
    sys.exit(bool(wrong))
