"""help() of each public function: numpydoc, with each parameter, results, exceptions, and an example that runs."""
import doctest
import inspect
import pathlib
import re

import numpy as np
import pytest

import mha
from mha.core.fields import FIELDS

PACKAGE = pathlib.Path(mha.__file__).parent
# What torch, transformers or a strategy of hypothesis is needed for, or a file; tests elsewhere run these.
UNSHOWN = {"watch", "transformers.register", "testing.cases", "MultiHeadAttention.from_torch", "Model.from_torch",
           "LiveModel.from_torch", "LiveModel.trace", "Trace.load", "Trace.picture", "Report.save", "Report.reduce"}
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
        assert "Examples" in found or name in UNSHOWN or name.startswith(("Cache.", "MultiHeadAttention."))
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


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, *(n for n in mha.__all__ if inspect.isclass(getattr(mha, n)))}))
def test_examples_run(name, tmp_path, monkeypatch):
    thing = FUNCTIONS.get(name) or getattr(mha, name)
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(thing.__doc__ or "", {"mha": mha, "np": np}, name, None, None)
    said = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def test_any_is_rare():
    """A type of a value that is only passed on is `object`; Any is for values of several types that code reads."""
    uses = [word for path in PACKAGE.rglob("*.py") for word in re.findall(r"\bAny\b", path.read_text(encoding="utf-8"))]
    assert 0 < len(uses) <= MOST_ANY
