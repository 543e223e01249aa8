"""The reference of C: what the public headers declare, each with its comment, as reStructuredText.

The headers are regular: a comment stands before what it is about, or behind it on its line; a blank line ends what a
comment in front is about. What this cannot read is an error, never left out.
"""
from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Optional

ROLES = {"function": "func", "struct": "struct", "union": "struct", "enum": "enum", "enumerator": "enumerator",
         "macro": "macro", "type": "type", "member": "member"}
NAMES = re.compile(r"`([^`\s][^`]*)`|\bmha_\w+(?:\.\w+)*|\bMHA_\w+")


class Item(NamedTuple):
    """What a header declares: signatures that share a comment, and what is inside of them."""
    kind: str
    signatures: list[str]
    comment: str
    inside: "list[Item]"


class Piece(NamedTuple):
    """A comment or a declaration with its place."""
    text: str
    from_line: int
    to_line: int
    is_comment: bool


def plain_comment(text: str) -> str:
    """The lines of a comment without its marks."""
    lines = text.removeprefix("/*").removesuffix("*/").rstrip().split("\n")
    rest = (re.sub(r"^\s*\* ?", "", line) if line.lstrip().startswith("*") else line.lstrip() for line in lines[1:])
    return "\n".join([lines[0].strip()] + [line.rstrip() for line in rest])


def pieces(text: str, line: int, end: str) -> Iterator[Piece]:
    """Comments and declarations of a text; a declaration ends with `end` outside of brackets."""
    at = 0
    while at < len(text):
        blank = re.compile(r"\s+").match(text, at)
        if blank:
            at = blank.end()
            continue
        begin = line + text.count("\n", 0, at)
        if text.startswith("/*", at):
            stop = text.index("*/", at) + 2
        elif text.startswith("#", at):
            found = re.compile(r"(?:[^\n\\]|\\\n|\\.)*").match(text, at)
            assert found
            stop = found.end()
            if "/*" in found[0] and not found[0].startswith("#define"):
                stop = at + found[0].index("/*")
        else:
            depth, stop = 0, at
            while stop < len(text) and (depth or text[stop] != end):
                if text.startswith("/*", stop):
                    if not depth:
                        break
                    stop = text.index("*/", stop) + 1
                depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[stop], 0)
                stop += 1
            stop += text[stop:stop + 1] == end
        yield Piece(text[at:stop], begin, line + text.count("\n", 0, stop), text.startswith("/*", at))
        at = stop


def grouped(text: str, line: int, end: str) -> Iterator[tuple[str, list[tuple[str, str]], bool]]:
    """(comment in front, [(declaration, comment behind it)], whether the comment has a blank line behind it)."""
    front, front_end, group, last = "", 0, [], 0
    for piece in pieces(text, line, end):
        if piece.is_comment and group and piece.from_line == last:
            declaration, behind = group[-1]
            group[-1] = declaration, "\n".join(filter(None, [behind, plain_comment(piece.text)]))
            last = piece.to_line
        elif piece.is_comment:
            if front or group:
                yield front, group, not group
            front, front_end, group, last = plain_comment(piece.text), piece.to_line, [], 0
        else:
            before = last or front_end
            if (front or group) and piece.from_line > before + 1:
                yield front, group, not group
                front, group = "", []
            group.append((piece.text, ""))
            last = piece.to_line
    if front or group:
        yield front, group, not group


class Header:
    """A header: its first comment, and sections of items."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        self.name, self.lists = path.name, {}
        text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "\n\n\n", text, flags=re.S)
        first = text.index("*/") + 2
        self.comment = plain_comment(text[:first])
        self.sections: list[tuple[str, str, list[Item]]] = [("", "", [])]
        for front, group, alone in grouped(text[first:], 1 + text.count("\n", 0, first), ";"):
            if title := re.match(r"-{10,} (.*)", front):
                self.sections.append((title[1], front[title.end():].strip("\n"), []))
                front = ""
            elif alone and front:
                self.sections[-1][2].append(Item("text", [], front, []))
            self.sections[-1][2].extend(self.items(front, group))

    def items(self, front: str, group: list[tuple[str, str]]) -> Iterator[Item]:
        """The items of a group: those without comments of their own share that in front."""
        shared: Optional[Item] = None
        for text, behind in group:
            item = self.item(text, "\n".join(filter(None, [front, behind])))
            front = "" if item else front
            if item and shared and item.kind == shared.kind and not item.comment and not item.inside \
                    and not shared.inside:
                shared.signatures.extend(item.signatures)
            elif item:
                if shared:
                    yield shared
                shared = item if not behind else None
                if behind:
                    yield item
        if shared:
            yield shared

    def item(self, text: str, comment: str) -> Optional[Item]:
        """What a declaration is; None for what is not shown."""
        text = text.rstrip(";").strip()
        if text.startswith("#"):
            return self.macro(text, comment)
        if not text:
            return None
        if found := re.match(r"(?:typedef )?(enum|struct|union) ?(\w*) ?\{(.*)\} ?(\w*)$", text, re.S):
            kind, tag, body, name = found.groups()
            name = name or tag
            if kind == "enum":
                inside = list(self.enumerators(body))
                return Item("enum", [name], comment, inside) if name else Item("group", [], comment, inside)
            return Item(kind, [name], comment, list(self.members(body)))
        if found := re.match(r"typedef struct \w+ (\w+)$", text):
            return Item("struct", [found[1]], comment, [])
        one_line = re.sub(r"\s+", " ", text)
        if found := re.match(r"typedef (.*)$", one_line):
            return Item("type", [found[1]], comment, [])
        if found := re.match(r"MHA_API (.*\))$", one_line) or re.match(r"(mha_\w+ \*?mha_mpi\w+\(.*\))$", one_line):
            return Item("function", [found[1]], comment, [])
        raise SystemExit(f"headers.py: {self.name}: cannot read: {text[:200]}")

    def macro(self, text: str, comment: str) -> Optional[Item]:
        """A macro that users see. Lists are kept for the enums that are made of them."""
        found = re.match(r"#define (MHA_\w+)(\(\w+\))?(.*)", text, re.S)
        if not found or found[1].endswith(("_H", "_ENUM", "_API")):
            return None
        if found[2]:
            self.lists[found[1]] = re.findall(r"X\((\w+), (.*?)\)(?= *\\?(?:\n|$))", found[3])
            return Item("macro", [found[1] + found[2]], comment, [])
        return Item("macro", [found[1]], comment or found[3].strip(), [])

    def enumerators(self, body: str) -> Iterator[Item]:
        """The words of an enum, those of a list with what the list says of each."""
        if found := re.search(r"^ +(MHA_\w+_LIST)\(", body, re.M):
            for code, rest in self.lists[found[1]]:
                yield Item("enumerator", [code], rest.replace('"', ""), [])
            body = body[body.index("#undef"):]
        for front, group, _ in grouped(body, 1, ","):
            for text, behind in group:
                name = text.rstrip(",").strip()
                if not name.startswith("#"):
                    yield Item("enumerator", [re.sub(r"\s+", " ", name)], "\n".join(filter(None, [front, behind])), [])
                    front = ""

    def members(self, body: str) -> Iterator[Item]:
        """The fields of a struct."""
        for front, group, _ in grouped(body, 1, ";"):
            for text, behind in group:
                text, comment = text.rstrip(";").strip(), "\n".join(filter(None, [front, behind]))
                front = ""
                if found := re.match(r"(struct|union) \{(.*)\} ?(\w+)[][\w]*$", text, re.S):
                    yield Item(found[1], [found[3]], comment, list(self.members(found[2])))
                    continue
                text = re.sub(r"\s+", " ", text)
                if "(*" in text:
                    yield Item("member", [text], comment, [])
                    continue
                found = re.match(r"((?:const |unsigned (?=char )|struct )*\w+)(.*)$", text)
                if not found:
                    raise SystemExit(f"headers.py: {self.name}: cannot read field: {text}")
                yield Item("member", [f"{found[1]} {part.strip()}" for part in found[2].split(",")], comment, [])


def declared(item: Item, scope: str = "") -> Iterator[tuple[str, str]]:
    """(name, kind) of what an item declares, and of what is inside."""
    for signature in item.signatures:
        found = re.search(r"\(\*(\w+)\)", signature) or re.match(r"[^(]*?(\w+)(?:\(| = |(?:\[[^]]*\])*$)", signature)
        assert found, signature
        yield scope + found[1], item.kind
        inner = f"{scope}{found[1]}." if item.kind in ("struct", "union") else ""
        for one in item.inside:
            yield from declared(one, inner)
    if item.kind == "group":
        for one in item.inside:
            yield from declared(one)


class Writer:
    """Pages of headers, in which every name that is declared somewhere is a link."""

    def __init__(self, headers: list[Header]) -> None:
        self.headers = headers
        self.kinds = {name: kind for header in headers for _, _, items in header.sections for item in items
                      for name, kind in declared(item)}
        self.enums = {name: item.signatures[0] for header in headers for _, _, items in header.sections
                      for item in items if item.kind == "enum" for word in item.inside for name, _ in declared(word)}

    def linked(self, text: str) -> str:
        """Plain text as reStructuredText."""
        out, at = [], 0
        for found in NAMES.finditer(text):
            if quoted := found[1]:
                out += [escaped(text[at:found.start()]), f"\\ ``{quoted}``\\ "]
                at = found.end()
                continue
            name = found[0]
            while name not in self.kinds and "." in name:
                name = name.rpartition(".")[0]
            if name in self.kinds:
                target = f"{name} <{self.enums[name]}.{name}>" if name in self.enums else name
                out += [escaped(text[at:found.start()]), f"\\ :c:{ROLES[self.kinds[name]]}:`{target}`\\ "]
                at = found.start() + len(name)
        return "".join(out + [escaped(text[at:])])

    def prose(self, text: str, margin: str) -> list[str]:
        """A comment whose names are links."""
        return prose(text, margin, self.linked)

    def directive(self, item: Item, margin: str) -> list[str]:
        """An item as a directive of Sphinx's domain of C."""
        if item.kind in ("group", "text"):
            lines = self.prose(item.comment, margin) + [""]
            return lines + [line for one in item.inside for line in self.directive(one, margin)]
        indent = margin + " " * 3
        lines = [f"{margin}.. c:{item.kind}:: {item.signatures[0]}"]
        lines += [f"{margin}{' ' * (len(item.kind) + 8)}{more}" for more in item.signatures[1:]] + [""]
        if item.comment:
            lines += self.prose(item.comment, indent) + [""]
        for one in item.inside:
            lines += self.directive(one, indent)
        return lines

    def page(self, header: Header) -> str:
        """A header as a page."""
        title = f"mha/{header.name}"
        lines = [title, "=" * len(title), "", *self.prose(header.comment, ""), "",
                 ".. code-block:: c", "", f"   #include <mha/{header.name}>", ""]
        for name, text, items in header.sections:
            if name:
                lines += [name[0].upper() + name[1:], "-" * len(name), ""]
            lines += self.prose(text, "") + [""]
            for item in items:
                lines += self.directive(item, "")
        return "\n".join(lines) + "\n"


def prose(text: str, margin: str, of_line: Callable[[str], str]) -> list[str]:
    """Plain text as paragraphs; what is indented or lined up stays as it is."""
    lines: list[str] = []
    literal = False
    given = text.split("\n")
    for line, after in zip(given, [*given[1:], ""]):
        lined_up = bool(line) and ("  " in line or after.startswith(" " * 6))
        if lined_up and not literal:
            lines += ["", margin + "::", ""]
        elif literal and not lined_up and line:
            lines.append("")
        literal = lined_up if line else literal
        lines.append(margin + ("  " + line if literal else of_line(line)) if line else "")
    return lines


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    return re.sub(r"([*`_|\\<>:])", r"\\\1", text)


def read_headers(folder: Path) -> Writer:
    """The public headers, mha.h first."""
    paths = sorted(folder.glob("*.h"), key=lambda path: (path.name != "mha.h", path.name))
    return Writer([Header(path) for path in paths])


def plain(text: str) -> str:
    """Plain text as reStructuredText; `names` stay."""
    parts = re.split(r"`([^`\s][^`]*)`", text)
    return "".join(f"\\ ``{part}``\\ " if i % 2 else escaped(part) for i, part in enumerate(parts))
