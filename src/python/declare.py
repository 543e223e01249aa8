"""Writes the module's declarations of the C interface: declare.py VERSION PREPROCESSED-HEADERS OUTPUT.

The headers are read as the C preprocessor leaves them (cc -E -P), so that lists made by macros are plain
text. They are regular: one typedef for each enum and struct, one declaration for each function. What this cannot read
is an error, never left out.
"""
from __future__ import annotations

import keyword
import re
import sys

PLAIN = {"size_t": "c.c_size_t", "ptrdiff_t": "c.c_ssize_t", "int64_t": "c.c_int64", "uint64_t": "c.c_uint64",
         "uint32_t": "c.c_uint32", "uint16_t": "c.c_uint16", "uint8_t": "c.c_uint8", "int": "c.c_int",
         "unsigned": "c.c_uint", "bool": "c.c_bool", "_Bool": "c.c_bool", "double": "c.c_double", "float": "c.c_float",
         "unsigned char": "c.c_ubyte"}

_SEEN = {"None": "None", "c.c_bool": "bool", "c.c_double": "float", "c.c_float": "float", "c.c_char_p": "Text",
         **{kind: "int" for kind in PLAIN.values() if kind not in ("c.c_bool", "c.c_double", "c.c_float")}}


def class_name(name: str) -> str:
    """mha_stage_verdict -> StageVerdict."""
    return "".join(part.capitalize() for part in name.removeprefix("mha_").split("_"))


def seen(kind: str, argument: bool = False) -> str:
    """The type in Python of a value that ctypes has as `kind`."""
    if kind in _SEEN:
        return f"Optional[{_SEEN[kind]}]" if argument and kind == "c.c_char_p" else _SEEN[kind]
    if kind.startswith("c.POINTER"):
        return "object" if argument else f"c._Pointer[{kind[10:-1]}]"
    if kind == "c.c_void_p":
        return "object" if argument else "Optional[int]"
    array = re.fullmatch(r"\(?(.*) \* \d+\)?", kind)
    return kind if not array else "Text" if array[1] == "c.c_char" else f"c.Array[{array_item(array[1])}]"


def array_item(kind: str) -> str:
    """The item of an array: a type of ctypes, or again an array."""
    return f"c.Array[{kind.strip('()').split(' * ')[0]}]" if " * " in kind else kind


class Headers:
    """The enums, structs and functions of a text, as Python."""

    def __init__(self, text: str) -> None:
        begin = text.index("typedef enum mha_status")
        self.text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", "", re.sub(r"\s+", " ", text[begin:]))
        self.constants: dict[str, int] = {}
        self.enums: dict[str, list[str]] = {}
        self.hidden: set[str] = set()
        self.functions: list[str] = []
        self.methods: list[str] = []  # the same functions, as a type checker sees them
        self.structs: list[tuple[str, str, list[str]]] = []
        self.pointers: set[str] = set()
        while self.text:
            self._declaration()
            self.text = self.text.lstrip(" ;")

    def _take(self, pattern: str) -> re.Match[str] | None:
        found = re.match(pattern, self.text)
        if found:
            self.text = self.text[found.end():]
        return found

    def _declaration(self) -> None:
        if self._take(r'extern "C" \{|\}'):
            return
        if found := self._take(r"(?:typedef )?enum ?(\w*) ?\{([^}]*)\} ?(\w*) ?;"):
            self._enum(found[3], found[2])
        elif found := self._take(r"typedef struct (\w+) (\w+) ?;"):
            self.hidden.add(found[2])
        elif found := self._take(r"typedef struct (\w+) \{"):
            body = self._body()
            self._take(r" ?\w+ ?;")
            self._struct(found[1], class_name(found[1]), body)
        elif found := self._take(r"typedef [\w ]+\*?\(\*(\w+)\)\([^;]*\) ?;"):
            self.pointers.add(found[1])
        elif found := self._take(r"([\w ]+?[ *]+)(mha_\w+) ?\(([^;]*)\) ?;"):
            self._function(found[1], found[2], found[3])
        else:
            raise SystemExit(f"declare.py: expected a declaration, found {self.text[:200]}")

    def _body(self) -> str:
        """The text between the brace that was just read and its partner."""
        depth, at = 1, 0
        while depth:
            depth += {"{": 1, "}": -1}.get(self.text[at], 0)
            at += 1
        body, self.text = self.text[:at - 1], self.text[at:]
        return body

    def _number(self, text: str) -> int:
        return int(eval(text, {"__builtins__": {}}, self.constants))  # a constant expression of the headers

    def _enum(self, name: str, body: str) -> None:
        value, names = 0, []
        for item in filter(None, (part.strip() for part in body.split(","))):
            constant, _, given = (part.strip() for part in item.partition("="))
            value = self._number(given) if given else value
            self.constants[constant] = value
            names.append(constant)
            value += 1
        if name:
            self.enums[name] = names

    # ---------------------------------------------------------------- types

    def _type(self, text: str, where: str) -> str:
        """The ctypes type of a C type without arrays; `where` is "field" or "argument"."""
        stars = text.count("*")
        word = re.sub(r"\b(const|struct)\b|\*", "", text).strip()
        known = any(word == name for name, _, _ in self.structs)
        if word in self.enums:
            plain = "c.c_int"
        elif word in self.pointers:
            return "c.c_void_p"
        else:
            plain = class_name(word) if known else PLAIN.get(word, "")
        if stars == 0:
            if word == "void" or plain:
                return plain or "None"
            raise SystemExit(f"declare.py: expected a known type, found {text}")
        if word == "char":
            target = "c.c_char_p"
        elif known or (plain and where == "argument"):
            target = f"c.POINTER({plain})"
        else:
            target = "c.c_void_p"
        if stars > 2:
            raise SystemExit(f"declare.py: expected at most two stars, found {text}")
        return target if stars == 1 else f"c.POINTER({target})"

    def _struct(self, c_name: str, name: str, body: str) -> None:
        fields = []
        while body := body.lstrip(" ;"):
            if found := re.match(r"(struct|union) \{", body):
                inner, rest = self._inner(body[found.end():])
                member, _, body = rest.partition(";")
                if found[1] == "union":
                    bytes_of = re.search(r"unsigned char \w+\[(\w+)\]", inner)
                    if not bytes_of:
                        raise SystemExit(f"declare.py: expected an array of bytes in the union of {c_name}")
                    kind = f"c.c_uint64 * {self._number(bytes_of[1]) // 8}"
                else:
                    kind = name + class_name(member.strip())
                    self._struct("", kind, inner)
                fields.append(f'("{member.strip()}", {kind})')
                continue
            declaration, _, body = body.partition(";")
            fields += self._fields(declaration)
        self.structs.append((c_name, name, fields))

    @staticmethod
    def _inner(text: str) -> tuple[str, str]:
        at = text.index("}")
        return text[:at], text[at + 1:]

    def _fields(self, declaration: str) -> list[str]:
        if pointer := re.match(r"[\w ]+\*?\(\*(\w+)\)\(", declaration):
            return [f'("{pointer[1]}", c.c_void_p)']
        found = re.match(r"((?:const )?(?:struct )?(?:unsigned (?=char))?\w+)(.*)", declaration)
        assert found, declaration
        fields = []
        for declarator in found[2].split(","):
            parts = re.match(r"\s*([*\s]*(?:const\s*\*?\s*)?)(\w+)\s*((?:\[[^]]*\])*)\s*$", declarator)
            if not parts:
                raise SystemExit(f"declare.py: expected a field, found {declaration}")
            counts = [self._number(n) for n in re.findall(r"\[([^]]*)\]", parts[3])]
            if found[1].split()[-1] == "char" and "unsigned" not in found[1] and counts and "*" not in parts[1]:
                kind = "c.c_char"
            else:
                kind = self._type(found[1] + parts[1], "field")
            for count in reversed(counts):
                kind = f"({kind} * {count})" if counts.index(count) else f"{kind} * {count}"
            fields.append(f'("{parts[2]}", {kind})')
        return fields

    def _function(self, result: str, name: str, arguments: str) -> None:
        types, given = [], ""
        for argument in arguments.split(","):
            if argument.strip() in ("void", ""):
                continue
            stars = "*" * ("[" in argument)
            plain = re.sub(r"\[[^]]*\]", "", argument)
            found = re.match(r"\s*((?:const |struct |unsigned (?=char))*\w+(?: const)?[\s*]*(?:const[\s*]*)?)", plain)
            assert found, argument
            kind = self._type(found[1] + stars, "argument")
            written = kind == "c.c_char_p" and "const" not in found[1]
            given += f", _{len(types)}: {'c.Array[c.c_char]' if written else seen(kind, True)}"
            types.append(kind)
        returned = self._type(result, "argument")
        self.functions.append(f'    "{name}": ({returned}, [{", ".join(types)}]),')
        self.methods.append(f"    def {name}(self{given}{', /' if types else ''}) -> {seen(returned)}: ...")

    # ---------------------------------------------------------------- Python

    def python(self, version: str) -> str:
        lines = ['"""The C interface of the library as ctypes declares it. Written by declare.py from include/mha."""',
                 "from __future__ import annotations", "", "import ctypes as c",
                 "from typing import Optional, Protocol",
                 "", "Text = bytes  # a field may be called bytes", "", f'SERIES = "{version.rpartition(".")[0]}"', "",
                 "ENUMS: dict[str, tuple[str, ...]] = {"]
        lines += [f'    "{name}": {tuple(names)!r},' for name, names in self.enums.items()]
        lines += ["}", "CONSTANTS: dict[str, int] = {"]
        lines += [f'    "{name}": {value},' for name, value in self.constants.items()]
        lines += ["}", ""]
        lines += ["class Struct(c.Structure):", '    """A struct of the library, called `c_name` there."""', "",
                  '    c_name = ""', ""]
        for c_name, name, fields in self.structs:
            lines += ["", f"class {name}(Struct):", f'    c_name = "{c_name}"', "    _fields_ = ["]
            lines += [f"        {field}," for field in fields] + ["    ]"]
            typed = (re.fullmatch(r'\("(\w+)", (.*)\)', field) for field in fields)
            lines += [f"    {f[1]}: {seen(f[2])}" for f in typed
                      if f and not f[2].startswith("c.POINTER") and not keyword.iskeyword(f[1])] + [""]
        lines += ["", "FUNCTIONS: dict[str, tuple[Optional[type], list[type]]] = {", *self.functions, "}", "", "",
                  "class Library(Protocol):", '    """The functions, for type checkers."""', "", *self.methods]
        return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as headers:
        made = Headers(headers.read()).python(sys.argv[1])
    with open(sys.argv[3], "w", encoding="utf-8") as out:
        out.write(made)
