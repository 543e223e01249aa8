"""Dumps of a model's intermediate results as stages by layer: arrays by name, transformers' debugger, llama.cpp's."""
from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Iterator, Optional

import numpy as np

from ..core import abi
from ..core import arrays as a
from ..core.errors import Error
from ..core.files import load

EDGE = 3  # numbers that are printed at either end of an axis, where it is longer than both
PRINTED = 5e-5  # what four decimals leave
_LAYER = re.compile(r"(?:^|[._-])(?:layers?|blk|blocks?|h)[._-]?(\d+)(?=$|[._-])|-(\d+)(?=$|[ (])")
_HEADER = re.compile(r"^\S+:\s+(.+?) = \((\w+)\)\s+(\w+)\(.*\) = \{([\d, ]+)\}\s*$")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)")
_DUMPS = "floating-point arrays, a call tree of transformers' debugger, or tensors of llama-eval-callback"
# Other names of a stage, by their ends.
WORDS = {"q": ("q_proj", "query", "q_lin", "wq", "q", "Qcur"), "k": ("k_proj", "key", "k_lin", "wk", "k", "Kcur"),
         "v": ("v_proj", "value", "v_lin", "wv", "v", "Vcur"), "q_rot": ("q_rot", "Qcur_rope", "query_rot"),
         "k_rot": ("k_rot", "Kcur_rope", "key_rot"), "scores": ("scores", "kq"), "weights": (
             "weights", "attn_weights", "probs", "kq_soft_max", "kq_soft_max_ext"),
         "heads": ("heads", "kqv_merged", "kqv_merged_cont", "kqv_out", "context"),
         "output": ("output", "o_proj", "out_proj", "attn_output", "attn_out")}
_STAGE = {word: stage for stage, words in WORDS.items() for word in words}


class DumpError(Exception):
    """Why a file is no dump, in one line."""


@dataclass(frozen=True)
class Stage:
    """One intermediate result. layer: its number, -1 where the name says none. shape: of the whole; array: all of it,
    or with `printed` the numbers at the ends of each axis."""

    name: str
    layer: int
    kind: str
    array: a.Doubles
    shape: tuple[int, ...]
    dtype: str
    printed: bool = False

    @property
    def key(self) -> tuple[int, str]:
        """The key by which stages of two dumps are compared."""
        return self.layer, self.kind


def stage_of(name: str, array: a.Floats, dtype: str, shape: Optional[tuple[int, ...]] = None, printed: bool = False,
             kind: str = "") -> Stage:
    """A stage of a name: its layer is the first number in it, its kind the last word that is known."""
    found = _LAYER.search(name)
    layer = -1 if found is None else int(found[1] or found[2])
    words = [word for word in re.split(r"[. ]|-\d+", name) if word]
    known = kind or _STAGE.get(words[-1] if words else "", "")
    if not known and words and words[-1] in abi.STAGES:
        known = words[-1]
    rest = name if found is None else name[:found.start()] + name[found.end():]
    whole = tuple(array.shape) if shape is None else shape
    return Stage(name, layer, known or rest.strip("._- "), np.asarray(array, np.float64), whole, dtype, printed)


def edges(array: a.Doubles) -> a.Doubles:
    """The numbers at the ends of each axis."""
    for axis, n in enumerate(array.shape):
        if n > 2 * EDGE:
            array = np.take(array, [*range(EDGE), *range(n - EDGE, n)], axis)
    return array


def read(path: a.Path) -> list[Stage]:
    """The stages of a dump, in its order; of several of one layer and kind the first. DumpError says why not."""
    path = os.fsdecode(path)
    try:
        with open(path, "rb") as file:
            begin = file.read(1 << 16)
        if not begin:
            raise DumpError(f"{path}: expected a dump, found an empty file")
        if begin[:4] in (b"PK\x03\x04", b"GGUF") or begin[8:9] == b"{" or path.endswith((".safetensors", ".npz")):
            found = list(_arrays(path))
        elif begin.lstrip()[:1] == b"{":
            found = list(_tree(path))
        else:
            found = list(_printed(path))
    except (UnicodeDecodeError, RecursionError, MemoryError) as reason:
        raise DumpError(f"{path}: expected {_DUMPS}, found {type(reason).__name__}") from None
    stages: dict[tuple[int, str], Stage] = {}
    for stage in found:
        stages.setdefault(stage.key, stage)
    if not stages:
        raise DumpError(f"{path}: expected {_DUMPS}, found none")
    return list(stages.values())


def _arrays(path: str) -> Iterator[Stage]:
    try:
        file = load(path)
        floats = [abi.DTYPES[code] for code in a.RESULTS]
        for name, dtype, *_ in file.table():
            if dtype in floats:
                tensor = a.doubles(a.floats(name, file[name], a.RESULTS))
                yield stage_of(name, tensor, dtype)
    except (Error, ValueError, TypeError) as reason:
        raise DumpError(str(reason).partition("\n")[0]) from None


# ---------------------------------------------------------------- transformers


def _tree(path: str) -> Iterator[Stage]:
    """The leaves of the call tree that model_addition_debugger_context writes: what each gave, and what the projection
    of the output was given, which are the heads."""
    with open(path, encoding="utf-8") as file:
        try:
            tree = json.load(file)
        except ValueError as reason:
            raise DumpError(f"{path}: expected JSON, found {reason}") from None
    if not isinstance(tree, dict) or "module_path" not in tree:
        raise DumpError(f"{path}: expected a call tree of transformers' debugger, found no \"module_path\"")
    nodes = [tree]
    while nodes:
        node = nodes.pop(0)
        if not isinstance(node, dict) or not isinstance(node.get("children") or [], list):
            raise DumpError(f"{path}: expected objects with \"children\", found {type(node).__name__}")
        name = str(node.get("module_path", ""))
        if name.rpartition(".")[2] in WORDS["output"]:
            yield from _leaf(path, name + " (input)", node.get("inputs"), "heads")
        yield from _leaf(path, name, node.get("outputs"), "")
        nodes[:0] = node.get("children") or []


def _leaf(path: str, name: str, value: object, kind: str) -> Iterator[Stage]:
    """The first tensor of what a module was given or gave."""
    while isinstance(value, (list, dict)) and not (isinstance(value, dict) and "shape" in value):
        inside = list(value.values() if isinstance(value, dict) else value)
        if not inside:
            return
        value = inside[0]
    if not isinstance(value, dict) or "float" not in str(value.get("dtype")):
        return
    shape = tuple(map(int, re.findall(r"\d+", str(value["shape"]))))
    dtype = {"torch.bfloat16": "BF16", "torch.float16": "F16", "torch.float64": "F64"}.get(str(value["dtype"]), "F32")
    given = value.get("value")
    if isinstance(given, str):
        beside = os.path.join(os.path.dirname(path), given)
        if not os.path.isfile(beside):
            raise DumpError(f"{path}: expected the numbers of {name} in {given} in the same folder, found no such file")
        for stage in _arrays(beside):
            yield stage_of(name, stage.array, dtype, kind=kind)
        return
    text = "\n".join(map(str, given)) if isinstance(given, list) else ""
    body = text[text.find("["):text.rfind("]") + 1]
    numbers = [float(x) for x in _NUMBER.findall(body)]
    if len(numbers) == int(np.prod(shape)):
        yield stage_of(name, np.reshape(numbers, shape), dtype, printed=True, kind=kind)
        return
    ends = tuple(min(n, 2 * EDGE) for n in shape)
    if len(numbers) == int(np.prod(ends)):
        yield stage_of(name, np.reshape(numbers, ends), dtype, shape, True, kind)


# ---------------------------------------------------------------- llama.cpp


def _printed(path: str) -> Iterator[Stage]:
    """What llama-eval-callback prints: the numbers at the ends of each axis, four decimals each."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    at = [i for i, line in enumerate(lines) if _HEADER.match(line)]
    for begin, end in zip(at, [*at[1:], len(lines)]):
        header = _HEADER.match(lines[begin])
        assert header is not None
        shape = tuple(int(n) for n in header[4].split(","))[::-1]
        inside = [line for line in lines[begin + 1:end] if line.lstrip()[:1] in ("[", "]")]
        numbers = [float(x) for line in inside for x in _NUMBER.findall(line)]
        if not inside:  # numbers of quantised tensors are not printed
            continue
        ends = tuple(min(n, 2 * EDGE) for n in shape)
        if len(numbers) != int(np.prod(ends)):
            raise DumpError(f"{path}: {header[1]}: expected {int(np.prod(ends))} numbers at the ends of {shape}, found "
                            f"{len(numbers)}")
        while len(shape) > 2 and shape[0] == 1:
            shape, ends = shape[1:], ends[1:]
        turned = header[3] == "ROPE" and header[1][:4] in ("Qcur", "Kcur")  # under the name that it had before
        yield stage_of(header[1], np.reshape(numbers, ends), header[2].upper(), shape, True,
                       header[1][0].lower() + "_rot" if turned else "")
