"""Finds libmha: MHA_LIBRARY, then the folder of the package, then the system; and libmha-lab next to it. Refuses
another version."""
from __future__ import annotations

import ctypes
import os
import re
from typing import Callable, Iterator, Optional, cast

from . import abi
from .errors import check


def _candidates() -> list[str]:
    named = os.environ.get("MHA_LIBRARY")
    if named:
        return [os.path.abspath(named)]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    beside = os.path.join(package, f"libmha.so.{abi.SERIES}")
    if os.path.exists(beside):
        return [beside]
    import ctypes.util

    return [f"libmha.so.{abi.SERIES}", ctypes.util.find_library("mha") or "libmha.so"]


def _lacking(path: str, reason: str) -> str:
    """The error for a library that exists but needs others that do not; "" for any other reason."""
    named = re.match(r"([^:/]+): cannot open shared object file", reason)
    if not named or named[1] in (path, _lab_of(path)):
        return ""
    import shutil
    import subprocess

    names = [named[1]]  # the loader names the first one only, ldd all
    if os.path.isabs(path) and shutil.which("ldd"):
        both = [file for file in (path, _lab_of(path)) if os.path.exists(file)]
        listed = subprocess.run(["ldd", *both], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        missing = re.findall(r"^\s*(\S+) => not found$", listed, re.M)
        names = [name for name in missing if not name.startswith("libmha.so")] or names
    return (f"{path} needs {', '.join(names)}, which this machine lacks: install them, or build mha on this machine "
            "(`make deps` installs what it needs)")


def _lab_of(path: str) -> str:
    """libmha-lab next to a libmha, or next to the file that this links to, or that of the system."""
    for core in (path, os.path.realpath(path)):
        folder, name = os.path.split(core)
        lab = os.path.join(folder, name.replace("libmha", "libmha-lab", 1))
        if folder and os.path.exists(lab):
            return lab
    return f"libmha-lab.so.{abi.SERIES}"


def _with_lab(path: str) -> ctypes.CDLL:
    """libmha-lab, which finds the libmha of this path by its soname; functions of both are functions of it."""
    core = ctypes.CDLL(path)
    return core if hasattr(core, "mha_case_open") else ctypes.CDLL(_lab_of(path))  # both may be in one file


def _load() -> tuple[abi.Library, str]:
    """libmha-lab, which finds the loaded libmha by its soname, so that functions of both are functions of it; and the
    path of libmha."""
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            library.mha_version.restype = ctypes.c_char_p
            version = library.mha_version().decode()
            if not version.startswith(abi.SERIES + "."):
                raise ImportError(f"{path}: expected mha {abi.SERIES}.x, found {version}; install library and module "
                                  "together")
            if not hasattr(library, "mha_case_open"):  # both may be in one file
                library = ctypes.CDLL(_lab_of(path))
        except (OSError, AttributeError) as reason:
            lacking = _lacking(path, str(reason))
            if lacking:
                raise ImportError(lacking) from None
            reasons.append(str(reason))
            continue
        abi.declare(library)
        return cast(abi.Library, library), path
    raise ImportError(f"MHA_LIBRARY: expected the path of libmha.so, found no library of mha ({'; '.join(reasons)}); "
                      "set MHA_LIBRARY, or install the library (make install)")


def _scripts() -> Iterator[str]:
    """Where installers put programs: this environment's, the user's, and next to a folder of packages."""
    import sysconfig

    yield sysconfig.get_path("scripts")
    if "posix_user" in sysconfig.get_scheme_names():
        yield sysconfig.get_path("scripts", "posix_user")


def program() -> Optional[str]:
    """The path of the program mha: next to the library, in the bin of its prefix, where pip puts programs, or where the
    shell looks; or None."""
    import shutil

    folder = os.path.dirname(os.path.abspath(_path)) if os.path.dirname(_path) else None
    for place in (*((folder, os.path.join(folder, "..", "bin")) if folder else ()), *_scripts()):
        path = os.path.normpath(os.path.join(place, "mha"))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("mha")


lib, _path = _load()
__version__: str = lib.mha_version().decode()


def call(function: Callable[..., int], *arguments: object) -> None:
    """Calls a function of the library whose last argument is an error, and raises what it says."""
    error = abi.Error()
    check(function(*arguments, ctypes.byref(error)), error)


class Handle:
    """An object of the library, freed when closed or unreferenced, after the objects that need it: Python collects
    the objects of a cycle in any order."""

    def __init__(self, what: str, address: Optional[int], destroy: Callable[[int], None], *needs: object) -> None:
        self._what, self._held, self._destroy = what, address, destroy
        self._needs, self._open = needs, True
        self._users: list[None] = []  # one for each object that needs it; changed as a whole, by any thread
        for need in needs:
            if isinstance(need, Handle):
                need._users.append(None)

    @property
    def address(self) -> int:
        """Its address; ValueError once it is closed."""
        if not self._open or not self._held:
            raise ValueError(f"{self._what}: expected an open {self._what}, found a closed one")
        return self._held

    def close(self) -> None:
        """Destroys it, or leaves that to the last one that needs it; what it needs itself is let go afterwards."""
        self._open = False
        self._let_go()

    def _let_go(self) -> None:
        if self._open or self._users:
            return
        held, self._held = self._held, None
        if held:
            self._destroy(held)
        needs, self._needs = self._needs, ()
        for need in needs:
            if isinstance(need, Handle):
                need._users.pop()
                need._let_go()

    def __del__(self) -> None:
        self.close()


def create(what: str, destroy: Callable[[int], None], function: Callable[..., int], *arguments: object,
           needs: tuple[object, ...] = (), after: tuple[object, ...] = ()) -> Handle:
    """Calls a function that makes an object: function(*arguments, &object, *after, &error)."""
    address = ctypes.c_void_p()
    call(function, *arguments, ctypes.byref(address), *after)
    return Handle(what, address.value, destroy, *needs)
