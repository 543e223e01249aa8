"""The truth value of results: that of `passed`, and none of a diagnosis; for every class of the module that has it."""
import importlib
import inspect
import pkgutil

import mha
import pytest


def classes():
    """Every class of every module of mha."""
    for info in pkgutil.walk_packages(mha.__path__, "mha."):
        if info.name.rpartition(".")[2] not in ("__main__", "pytest_plugin", "strategies", "libmha"):
            module = importlib.import_module(info.name)
            yield from (x for x in vars(module).values() if inspect.isclass(x) and x.__module__ == module.__name__)


def those_with(word):
    """The classes whose instances have an attribute."""
    return {x for x in classes() if hasattr(x, word) or word in vars(x).get("__annotations__", {})
            or f"self.{word} = " in inspect.getsource(x)}


def of(kind, **attributes):
    """An instance of a class that has nothing but these attributes."""
    return object.__new__(type(kind.__name__, (kind,), attributes))


PASSED = sorted(those_with("passed"), key=str)
RIGHT = sorted(those_with("right"), key=str)


def test_the_classes_are_found():
    assert {x.__name__ for x in PASSED} >= {"Verdict", "Report", "Watch", "Checked", "Invariances"}
    assert {x.__name__ for x in RIGHT} >= {"Diagnosis", "GradientDiagnosis"}


@pytest.mark.parametrize("kind", PASSED)
def test_a_result_is_true_if_it_passed(kind):
    assert bool(of(kind, passed=True)) is True
    assert bool(of(kind, passed=False)) is False


@pytest.mark.parametrize("kind", RIGHT)
def test_a_diagnosis_has_no_truth_value(kind):
    for right in (True, False):
        with pytest.raises(TypeError, match=r"^diagnosis: expected one of its attributes, found .*`right` .* `names` "):
            bool(of(kind, right=right, names=[]))
