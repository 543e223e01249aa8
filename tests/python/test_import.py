"""`import mha` loads the library and reads no table of it; a module is imported when one of its names is first used."""
import ast
import os
import pathlib
import pickle
import pkgutil
import pydoc
import subprocess
import sys

import pytest

import mha

TREE = ast.parse(pathlib.Path(mha.__file__).read_text(encoding="utf-8"))


def python(code):
    """What a fresh Python prints."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(mha.__file__))})
    return run.stdout.strip()


def test_only_the_library_is_loaded():
    loaded = python("import sys, mha; print(*sorted(x for x in sys.modules if x.startswith('mha.')), 'numpy' in "
                    "sys.modules)")
    assert loaded == "mha._renamed mha.core mha.core.abi mha.core.declared mha.core.errors mha.core.library False"


# The packages that each may use beside itself.
BELOW = {"core": set(), "judge": {"core"}, "conformance": {"core", "judge"}, "models": {"core"},
         "torch": {"core", "judge", "models"}}


@pytest.mark.parametrize("package", BELOW)
def test_packages_use_those_below(package):
    used = {node.module.partition(".")[0]: path.name
            for path in (pathlib.Path(mha.__file__).parent / package).glob("*.py")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and node.level == 2 and
            (node.module or "").partition(".")[0] in BELOW}
    assert set(used) <= BELOW[package]


def test_each_class_has_a_name_of_its_own():
    names = [node.name for path in pathlib.Path(mha.__file__).parent.rglob("*.py") if path.name != "declared.py"
             for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    assert sorted(names) == sorted(set(names))


HEARD = """
import ctypes
called = []

class Heard(ctypes._CFuncPtr):
    _flags_ = 1

    def __call__(self, *given):
        called.append(self.__name__)
        return super().__call__(*given)

ctypes._CFuncPtr = Heard
import mha
print(*called)
mha.bugs()
print(called.count("mha_bug_at") > 100)
"""


def test_no_table_is_read():
    """The import calls one function of the library: its version is compared, and kept as mha.__version__."""
    assert python(HEARD).splitlines() == ["mha_version mha_version", "True"]


@pytest.mark.parametrize("name", ["attention", "conform", "merge", "watch", "testing", "transformers", "Rope"])
def test_a_name_that_is_the_first(name):
    assert python(f"from mha import {name}; import mha; print(mha.{name} is {name})") == "True"


def test_every_name_is_there():
    for name in mha.__all__:
        assert name in dir(mha) and getattr(mha, name) is not None


def test_lists_of_names_agree():
    assert set(mha.__all__) == {*mha._HOME, "__version__", "testing", "transformers"}
    block = next(node for node in TREE.body if isinstance(node, ast.If))
    typed = {name.name: node.module for node in block.body for name in node.names}
    assert typed == {**mha._HOME, "testing": None, "transformers": None}


def test_no_module_hides_a_function():
    """The import system sets mha.NAME to a module of this name, even where NAME is a function."""
    assert not set(mha._HOME) & {module.name for module in pkgutil.iter_modules(mha.__path__)}


def test_what_is_no_name_of_the_module():
    for name in ("atention", "_private", "numpy"):
        with pytest.raises(AttributeError, match=f"module 'mha' has no attribute '{name}'"):
            getattr(mha, name)
    assert mha.core.settings.SETTINGS is mha.SETTINGS  # a module that has no name among the public ones


def test_help_and_pickle():
    said = pydoc.plain(pydoc.render_doc(mha))
    assert "scaled_dot_product_attention" in said and "class MultiHeadAttention" in said
    for thing in (mha.attention, mha.conform, mha.Report, mha.Verdict):
        assert pickle.loads(pickle.dumps(thing)) is thing
