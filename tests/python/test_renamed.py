"""Names of 0.3: each raises an error, or stops a compiler, with the name that it has now."""
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import mha
from mha import _renamed

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include/mha/renamed.h"


@pytest.mark.parametrize("module, table", [(mha, _renamed.MODULE), (mha.testing, _renamed.TESTING)])
def test_modules_name_the_new_name(module, table):
    for old, new in table.items():
        assert getattr(module, new) is not None
        with pytest.raises(AttributeError, match=f"{old!r}: renamed to {new!r} in 0.4"):
            getattr(module, old)
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        module.nothing


def results():
    """An object of each class with renamed attributes that a call returns."""
    q = np.random.default_rng(0).standard_normal((1, 1, 4, 8), np.float32)
    y = mha.scaled_dot_product_attention(q, q, q)
    found = mha.diagnose(2 * y, q, q, q)
    verdict = mha.check(y, q, q, q)
    report = mha.conform(lambda q, k, v, **said: q, has=(), level="smoke", only="plain.q1-s1")
    return [found, found.baseline, verdict, verdict.stages[0], report, report.results[0], mha.Watch]


def test_results_name_the_new_name():
    for found in results():
        cls = found if isinstance(found, type) else type(found)
        assert cls._RENAMED
        for old, new in cls._RENAMED.items():
            assert hasattr(found, new), (cls, new)
            if found is not cls:
                with pytest.raises(AttributeError, match=f"{cls.__name__}.*{old!r}: renamed to {new!r} in 0.4"):
                    getattr(found, old)
        assert not hasattr(found, "nothing")


def test_keywords_name_the_new_name():
    with pytest.raises(TypeError, match=r"^dialect: expected conventions, its name since 0.4, found dialect"):
        mha.conform(mha.scaled_dot_product_attention, dialect={"empty": "nan"})
    report = mha.conform(mha.scaled_dot_product_attention, has=(), level="smoke", only="plain.q1-s1")
    with pytest.raises(TypeError, match=r"^question: expected case, its name since 0.4"):
        report.reduce(question="plain.q1-s1")


@pytest.mark.skipif(not HEADER.exists() or not shutil.which("cc"), reason="needs the sources and a compiler")
def test_compilers_name_the_new_name(tmp_path):
    """Each new name is declared; a program with the old ones does not compile, and the compiler prints the new ones."""
    renamed = re.findall(r"^#define (\w+) \1_is_now_(\w+)$", HEADER.read_text(), re.M)
    assert renamed and len(renamed) == HEADER.read_text().count("#define ") - 1  # but the guard
    declared = "".join(header.read_text() for header in HEADER.parent.glob("*.h") if header != HEADER)
    for old, new in renamed:
        assert re.search(rf"\b{new}\b", declared) and not re.search(rf"\b{old}\b", declared), (old, new)
    source = tmp_path / "old.c"
    source.write_text('#include "mha/mha.h"\nint main(void)\n{\n' +
                      "".join(f"    (void)sizeof({old});\n" for old, _ in renamed) + "}\n")
    found = subprocess.run(["cc", "-fsyntax-only", "-fmax-errors=0", f"-I{ROOT / 'include'}", source],
                           capture_output=True, text=True)
    assert found.returncode != 0
    for old, new in renamed:
        assert f"{old}_is_now_{new}" in found.stderr
