"""python -m mha: the program next to the library or on the path. `watch` and `conform` of a Python kernel are here."""
import os
import re
import sys

from .core.library import program

if sys.argv[1:2] == ["grade"]:
    print("mha grade: renamed: python -m mha conform FILE.py:FUNCTION", file=sys.stderr)
    sys.exit(2)

if sys.argv[1:2] == ["conform"] and (
        sys.argv[2:] in (["--help"], ["-h"]) or any(word == "--sealed" or re.search(r":\w*$|\.py$", word)
                                                     for word in sys.argv[2:])):
    from .conformance.command import main

    sys.exit(main(sys.argv[2:]))

if sys.argv[1:2] == ["watch"]:
    from .torch.comparison import main

    sys.exit(main(sys.argv[2:]))

path = program()
if path is None:
    sys.exit("python -m mha: the program is not installed: `pip install .` or `make install` in the sources of mha "
             "installs it; mha.check(FILE) and mha.diagnose(FILE) work without it")
os.execv(path, ["mha", *sys.argv[1:]])
