"""help() of each public function: numpydoc, with each parameter, results, exceptions, and an example that runs."""
import dataclasses
import doctest
import inspect
import pathlib
import re
import sys

import numpy as np
import pytest

import mha
from mha.core.fields import FIELDS

PACKAGE = pathlib.Path(mha.__file__).parent
# Packages that an example needs; make test-torch runs it.
NEEDS = {**dict.fromkeys(("watch", "Watch", "LiveModel", "MultiHeadAttention.from_torch", "Model.from_torch",
                          "LiveModel.from_torch", "LiveModel.trace", "LiveModel.tensors"), ["torch"]),
         "transformers.register": ["torch", "transformers"], "testing.cases": ["hypothesis"]}
MOST_ANY = 150


def functions():
    """Public functions, and public methods with parameters, by name."""
    found = {}
    spaces = {"": (mha, [name for name in mha.__all__ if not name.startswith("_")]),
              **{f"{name}.": (getattr(mha, name), getattr(mha, name).__all__) for name in ("testing", "transformers")}}
    for prefix, (space, names) in spaces.items():
        for name in names:
            thing = getattr(space, name)
            if inspect.isfunction(thing):
                found[prefix + name] = thing
            elif inspect.isclass(thing) and not issubclass(thing, (Exception, tuple)):
                for method, held in inspect.getmembers(thing):
                    public = not method.startswith("_") or method == "__call__"
                    if public and (inspect.isfunction(held) or inspect.ismethod(held)) and "mha" in held.__module__:
                        found[f"{prefix}{name}.{method}"] = held
    return found


FUNCTIONS = functions()


def sections(text):
    """The sections of a docstring by title."""
    parts = re.split(r"^([A-Z][\w ]+)\n-+$", inspect.cleandoc(text), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_part_is_there(name):
    function = FUNCTIONS[name]
    own = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    found = sections(function.__doc__)
    told = {word.lstrip("*") for line in found.get("Parameters", "").splitlines() if line and line[0] not in " "
            for word in re.split(r",\s*", line.partition(" : ")[0])}
    assert {p.name for p in own} == told
    gives = function.__annotations__.get("return") not in (None, "None")
    assert not gives or {"Returns", "Yields"} & set(found)
    if own:
        assert "Raises" in found or name in ("Cache.truncate", "testing.save_failures")
        assert "Examples" in found or name.startswith(("Cache.", "MultiHeadAttention."))
    assert len(function.__doc__.splitlines()[0]) < 121 and not re.search(r"mha/\w+\.h|\bmha_\w+", function.__doc__)


@pytest.mark.parametrize("name", ["Bias", "Cache", "File", "Model", "MultiHeadAttention", "Relative", "Rope", "Table",
                                  "Trace"])
def test_each_parameter_of_a_class_is_there(name):
    kind = getattr(mha, name)
    found = sections(kind.__doc__)
    told = [word.lstrip("*") for title in ("Parameters", "Other Parameters")
            for line in found.get(title, "").splitlines() if line and line[0] not in " "
            for word in re.split(r",\s*", line.partition(" : ")[0])]
    own = [p.name for p in inspect.signature(kind).parameters.values()]
    more = set(FIELDS) - set(own) if name == "MultiHeadAttention" else set()
    assert sorted(told) == sorted({*own, *more}) and "Examples" in found


# Classes of results, by name: those that mha makes, with public attributes.
RESULTS = {kind.__name__: kind for space in (mha, mha.testing) for name in space.__all__
           if inspect.isclass(kind := getattr(space, name)) and name not in ("Bias", "Relative", "Rope")
           and (dataclasses.is_dataclass(kind) or issubclass(kind, tuple))}


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_each_attribute_of_a_result_is_there(name):
    kind = RESULTS[name]
    told = {word for line in sections(kind.__doc__)["Attributes"].splitlines() if line and line[0] not in " "
            for word in re.split(r",\s*", line.partition(" : ")[0])}
    own = kind._fields if issubclass(kind, tuple) else kind.__dict__.get("__annotations__", ())
    assert told >= {field for field in own if not field.startswith("_")}
    assert all(hasattr(kind, word) or word in kind.__dataclass_fields__ for word in told)


def test_results_are_exported():
    """Each class of the module that a public function returns, or a public result has, is a public name."""
    public = {name for space in (mha, mha.testing) for name in space.__all__}
    made = {name: value for module in list(sys.modules.values()) if module.__name__.startswith("mha.")
            for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__}
    texts = [f"{function.__annotations__.get('return')}" for function in FUNCTIONS.values()]
    texts += [f"{text}" for kind in RESULTS.values() for field, text in kind.__annotations__.items() if field[0] != "_"]
    texts += [f"{value.fget.__annotations__.get('return')}" for kind in RESULTS.values()
              for field, value in vars(kind).items() if field[0] != "_" and isinstance(value, property)]
    found = {word for text in texts for word in re.findall(r"(?<![\w.])[A-Z]\w+", text) if word in made}
    more = found - public  # of programs that measure or draw calls
    assert len(found) > 15 and more <= {"Request", "Rows", "RandomCall"}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.needs(*NEEDS[name])) if name in NEEDS else name
    for name in sorted({*FUNCTIONS, *(n for n in mha.__all__ if inspect.isclass(getattr(mha, n)))})])
def test_examples_run(name, tmp_path, monkeypatch):
    thing = FUNCTIONS.get(name) or getattr(mha, name)
    monkeypatch.chdir(tmp_path)
    assert name not in NEEDS or ">>> " in thing.__doc__
    test = doctest.DocTestParser().get_doctest(thing.__doc__ or "", {"mha": mha, "np": np}, name, None, None)
    said = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def test_any_is_rare():
    """A type of a value that is only passed on is `object`; Any is for values of several types that code reads."""
    uses = [word for path in PACKAGE.rglob("*.py") for word in re.findall(r"\bAny\b", path.read_text(encoding="utf-8"))]
    assert 0 < len(uses) <= MOST_ANY
