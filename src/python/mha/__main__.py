"""python -m mha: the program, where it is installed beside the library or on the path."""
import os
import sys

from ._library import program

path = program()
if path is None:
    sys.exit("python -m mha: the program is not here: `pip install mha` brings it, and so does `make install` of the "
             "sources; without it there are mha.check(FILE) and mha.diagnose(FILE)")
os.execv(path, ["mha", *sys.argv[1:]])
