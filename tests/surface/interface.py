#!/usr/bin/env python3
"""The core of the C interface as a list of lines, against the one that is recorded: interface.py RECORDED CC [write].

Each line is a promise to programs that are already compiled: a function with its types, the place and type of a field,
the size of a struct, the value of a word. All that is recorded must still be so; what is new must be recorded, by
`make interface`. Only headers of libmha, those that mha/mha.h includes."""
import ctypes
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, "src/python")
import declare  # noqa: E402

# Callers only see pointers to these, which the library makes: they may grow.
GROWING = ("mha_stage_info", "mha_weight_info", "mha_backward_stage_info", "mha_setting", "mha_config_field")
TITLE = "# The core of the interface, which programs that are compiled rely on. Written by `make interface`."


def core_headers():
    for line in pathlib.Path("include/mha/mha.h").read_text().splitlines():
        if line.startswith("#include"):
            yield line.split('"')[1]


def type_text(kind):
    """c_uint64_Array_4 -> c_uint64*4; classes of ctypes by their names."""
    if hasattr(kind, "_length_"):
        return f"{type_text(kind._type_)}*{kind._length_}"
    return kind.__name__.removeprefix("c_")


def lines_of(cc):
    source = "#include \"mha/status.h\"\n" + "".join(f'#include "{h}"\n' for h in core_headers())
    text = subprocess.run([*cc.split(), "-E", "-P", "-Iinclude", "-x", "c", "-"], input=source, text=True, check=True,
                          capture_output=True).stdout
    headers = declare.Headers(text)
    made: dict = {}
    exec(compile(headers.python("0.0.0"), "declarations", "exec"), made)
    counts = {name for name in headers.constants if name.endswith("_COUNT")}  # these grow with what they count
    for name, value in headers.constants.items():
        if name not in counts:
            yield f"{name} = {value}"
    for c_name, name, _ in headers.structs:
        struct = made[name]
        if c_name and c_name not in GROWING:
            yield f"sizeof {c_name} = {ctypes.sizeof(struct)}"
        for field, kind in struct._fields_:
            if field != "reserved":  # whose words become fields
                yield f"{c_name or name}.{field} at {getattr(struct, field).offset}: {type_text(kind)}"
    for function, (result, arguments) in made["FUNCTIONS"].items():
        words = ", ".join(type_text(a) for a in arguments)
        yield f"{function}({words}): {type_text(result) if result else 'void'}"


def main():
    recorded = pathlib.Path(sys.argv[1])
    now = sorted(lines_of(sys.argv[2]))
    before = recorded.read_text().splitlines()[1:] if recorded.exists() else []
    gone, new = sorted(set(before) - set(now)), sorted(set(now) - set(before))
    if gone and os.environ.get("BREAK") != "1":
        sys.exit("the core no longer has what compiled programs rely on (BREAK=1 make interface records it, for a "
                 "minor version that breaks the interface):\n  " + "\n  ".join(gone))
    if len(sys.argv) > 3:
        recorded.write_text("\n".join([TITLE, *now]) + "\n")
    elif new:
        sys.exit("`make interface` records what is new in the core:\n  " + "\n  ".join(new))
    print(f"{len(now)} lines of the core's interface are as recorded")


main()
