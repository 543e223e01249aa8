"""python -m mha: the program, where it is installed beside the library or on the path. `grade` and `watch` are Python's
own."""
import os
import sys

from ._library import program

if sys.argv[1:2] == ["grade"]:
    from .grading import main

    sys.exit(main(sys.argv[2:]))

if sys.argv[1:2] == ["watch"]:
    from .parting import main

    sys.exit(main(sys.argv[2:]))

path = program()
if path is None:
    sys.exit("python -m mha: the program is not installed: `pip install .` or `make install` in the sources of mha "
             "installs it; mha.check(FILE) and mha.diagnose(FILE) work without it")
os.execv(path, ["mha", *sys.argv[1:]])
