"""Every declaration of the module against the headers: a C program is compiled that knows both."""
import ctypes
import itertools
import os
import pathlib
import re
import subprocess
import sys

import pytest

from mha.core import abi, declared
from mha.core.library import __version__, lib
from mha.core.fields import FIELDS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/src/python")
import declare  # noqa: E402

del sys.path[0]  # the sources of the module lie there, too
CC = os.environ.get("CC", "cc").split()


def compiled(source, folder):
    """What a C program prints that is compiled against the headers."""
    (folder / "abi.c").write_text(source)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-array-parameter", f"-I{ROOT}/include"]
    run = subprocess.run([*CC, *flags, "-o", folder / "abi", folder / "abi.c"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return subprocess.run([folder / "abi"], capture_output=True, text=True, check=True).stdout.split()


def structs():
    return [s for s in abi.Struct.__subclasses__() if s.c_name]


def kind(field):
    """How a C field of this ctypes type answers to _Generic below."""
    if field is ctypes.c_double:
        return "real"
    if field is ctypes.c_bool:
        return "bool"
    if field is ctypes.c_uint:
        return "signed"  # which is what an enum is called below
    if issubclass(field, (ctypes.Structure, ctypes.Array)):
        return "other"
    if field in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(field, ctypes._Pointer):
        return "other"
    return "signed" if field(-1).value < 0 else "unsigned"


KIND = ('_Generic((x), double: "real", bool: "bool", int: "signed", long: "signed", long long: "signed", '
        'unsigned: "enum", unsigned long: "unsigned", unsigned long long: "unsigned", default: "other")')


def test_layout_of_every_struct(tmp_path):
    lines, expected = [], []
    for s in structs():
        lines.append(f'printf("%zu\\n", sizeof({s.c_name}));')
        expected.append(str(ctypes.sizeof(s)))
        for name, field in s._fields_:
            lines.append(f'{{ {s.c_name} *p = 0; printf("%zu %zu %s\\n", offsetof({s.c_name}, {name}), '
                         f"sizeof p->{name}, KIND(p->{name})); }}")
            at = getattr(s, name)
            expected += [str(at.offset), str(at.size), kind(field)]
    source = (f"#include <mha/lab.h>\n#include <stddef.h>\n#include <stdio.h>\n#define KIND(x) {KIND}\n"
              "int main(void)\n{\n" + "\n".join(lines) + "\n}\n")
    found = [word.replace("enum", "signed") for word in compiled(source, tmp_path)]  # gcc's enums are unsigned
    assert len(structs()) > 25 and found == expected


def test_every_function_of_the_headers_is_declared():
    text = "".join(header.read_text() for header in sorted(pathlib.Path(ROOT, "include", "mha").glob("*.h"))
                   if header.name != "mpi.h")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    names = re.findall(r"MHA_API[^;(]*?(mha_\w+)\s*\(", text)
    assert sorted(names) == sorted(declared.FUNCTIONS) and len(names) > 150
    assert all(getattr(lib, name).argtypes is not None for name in names)


def test_what_cannot_be_read_is_an_error():
    """declare.py leaves nothing out in silence."""
    begin = "typedef enum mha_status { MHA_OK } mha_status; "
    good = declare.Headers(begin + "typedef struct mha_b { const char *n; double x[2][3]; size_t a, *b; "
                           "union { unsigned char bytes[16]; double d; } u; } mha_b; int mha_f(mha_b *b, size_t n[4]);")
    assert good.structs == [("mha_b", "B", ['("n", c.c_char_p)', '("x", (c.c_double * 3) * 2)', '("a", c.c_size_t)',
                                            '("b", c.c_void_p)', '("u", c.c_uint64 * 2)'])]
    assert good.functions == ['    "mha_f": (c.c_int, [c.POINTER(B), c.POINTER(c.c_size_t)]),']
    for wrong in ("static int mha_x(void) { return 0; }", "typedef struct mha_c { long double x; } mha_c;",
                  "typedef struct mha_c { int x : 3; } mha_c;", "long mha_f(void);", "int mha_f(char ***x);",
                  "typedef struct mha_c { union { int a; } u; } mha_c;"):
        with pytest.raises(SystemExit, match="declare.py: "):
            declare.Headers(begin + wrong)


def test_every_field_of_a_config_has_its_row():
    """A switch that is declared in a gap between others, too."""
    declared = [(name, getattr(abi.Config, name).offset, getattr(abi.Config, name).size)
                for name, _ in abi.Config._fields_ if name != "reserved"]
    rows = [row.contents for row in itertools.takewhile(bool, map(lib.mha_config_field_at, itertools.count()))]
    assert [(row.name.decode(), row.at, row.bytes) for row in rows] == declared
    assert [*FIELDS, "matrix_dtype"] == [name for name, *_ in declared]


def test_order_of_every_enum(tmp_path):
    lists = {"MHA_": abi.DTYPES, "MHA_PATH_": abi.PATHS, "MHA_STAGE_": abi.STAGES, "MHA_GATE_": FIELDS["gate"].words,
             "MHA_NORM_": FIELDS["k_norm"].words, "MHA_TENSOR_": abi.TENSOR_KINDS,
             "MHA_ORIENTATION_": abi.ORIENTATIONS, "MHA_OUTCOME_": abi.OUTCOMES,
             "MHA_CRITERION_": abi.CRITERIA, "MHA_POWER_": abi.POWER_RESULTS}
    codes, expected = [], []
    for prefix, names in lists.items():
        for i, name in enumerate(names):
            codes.append(prefix + name.upper())
            expected.append(i)
    for i, name in enumerate(abi.WEIGHTS):
        codes.append("MHA_" + name.upper())
        expected.append(i)
    for i, name in enumerate(abi.STATUS):
        codes.append("MHA_" + {"i/o": "IO"}.get(name, name.upper().replace(" ", "_")))
        expected.append(i)
    for i, name in enumerate(abi.ROPE_SCALINGS[1:], 1):
        codes.append("MHA_ROPE_" + name.upper())
        expected.append(i)
    for i, name in enumerate(abi.FINDINGS):
        codes.append({"stored twice": "MHA_FINDING_TIED"}.get(name, "MHA_FINDING_" + name.upper()))
        expected.append(i)
    counts = {"MHA_PATH_COUNT": len(abi.PATHS), "MHA_STAGE_COUNT": len(abi.STAGES),
              "MHA_WEIGHT_COUNT": len(abi.WEIGHTS), "MHA_FINDING_COUNT": len(abi.FINDINGS),
              "MHA_ROPE_SCALING_COUNT": len(abi.ROPE_SCALINGS), "MHA_ROPE_MAX_PAIRS": abi.ROPE_MAX_PAIRS,
              "MHA_ALIBI_MAX_HEADS": abi.ALIBI_MAX_HEADS,
              "MHA_MAX_RANK": abi.MAX_RANK, "MHA_PLAN_PRIVATE_BYTES": ctypes.sizeof(abi.Plan().internal)}
    codes += list(counts)
    expected += list(counts.values())
    source = ("#include <mha/lab.h>\n#include <stdio.h>\nint main(void)\n{\n"
              + "\n".join(f'    printf("%d\\n", (int){code});' for code in codes) + "\n}\n")
    assert [int(word) for word in compiled(source, tmp_path)] == expected


def test_names_are_the_library_s():
    for function, names in ((lib.mha_dtype_name, abi.DTYPES), (lib.mha_path_name, abi.PATHS),
                            (lib.mha_finding_name, abi.FINDINGS)):
        assert tuple(function(i).decode() for i in range(len(names))) == names
    for row, names in ((lib.mha_stage_at, abi.STAGES), (lib.mha_weight_at, abi.WEIGHTS)):
        assert tuple(row(i)[0].name.decode() for i in range(len(names))) == names


def test_version(tmp_path):
    source = ('#include <mha/lab.h>\n#include <stdio.h>\nint main(void)\n{\n    printf("%d.%d", MHA_VERSION_MAJOR, '
              'MHA_VERSION_MINOR);\n}\n')
    assert compiled(source, tmp_path) == [abi.SERIES]
    assert __version__.startswith(abi.SERIES + ".")
