"""Builds the wheel and the sdist with setuptools; the wheel carries the library.

The library is built with make, or is the one that MHA_LIBRARY names; an empty MHA_LIBRARY makes a wheel without one,
which uses the library of the system. The version is that of include/mha/system.h.
"""
import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile

from setuptools import build_meta

TREE = ("CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml",
        "bench", "include", "src", "tests", "weights")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULE = os.path.join(ROOT, "src", "python", "mha")

with open(os.path.join(ROOT, "include", "mha", "system.h"), encoding="utf-8") as header:
    VERSION = ".".join(re.findall(r"define MHA_VERSION_\w+ (\d+)", header.read()))


def _source(member):
    """Leaves out what Python or a build left in the tree."""
    name = os.path.basename(member.name)
    return None if name == "__pycache__" or name.endswith((".pyc", ".so")) else member


@contextlib.contextmanager
def _elsewhere():
    """setuptools works in a folder of its own, not in build/, and leaves nothing among the sources."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "extra.cfg"), "w", encoding="utf-8") as extra:
            extra.write(f"[build]\nbuild_base = {folder}/build\n[egg_info]\negg_base = {folder}\n")
        os.environ["DIST_EXTRA_CONFIG"] = extra.name
        try:
            yield
        finally:
            del os.environ["DIST_EXTRA_CONFIG"]


def get_requires_for_build_wheel(config_settings=None):
    """Nothing beside pyproject.toml."""
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """The wheel's metadata."""
    with _elsewhere():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_sdist(sdist_directory, config_settings=None):
    """All of TREE, from which make builds the library."""
    root = f"mha-{VERSION}"
    with tempfile.TemporaryDirectory() as folder:
        info = prepare_metadata_for_build_wheel(folder)
        with tarfile.open(os.path.join(sdist_directory, root + ".tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as sdist:
            for name in TREE:
                sdist.add(os.path.join(ROOT, name), f"{root}/{name}", filter=_source)
            if not os.path.exists(os.path.join(MODULE, "_declared.py")):
                sdist.add(_declarations(), f"{root}/src/python/mha/_declared.py")
            sdist.add(os.path.join(folder, info, "METADATA"), f"{root}/PKG-INFO")
    return root + ".tar.gz"


def _make(target):
    """The path of what make builds."""
    subprocess.run(["make", "-s", f"-j{os.cpu_count() or 1}", f"PYTHON={sys.executable}", target], cwd=ROOT, check=True)
    return os.path.join(ROOT, target)


@contextlib.contextmanager
def _beside(path, name):
    """A copy of a file among the module's own, if there is one and it does not lie there."""
    to = os.path.join(MODULE, name)
    if not path or os.path.exists(to):
        yield
        return
    shutil.copyfile(path, to)
    try:
        yield
    finally:
        os.remove(to)


def _declarations():
    """What the module knows of the headers; an sdist has it, which then needs no compiler for a wheel without a
    library."""
    there = os.path.join(MODULE, "_declared.py")
    return there if os.path.exists(there) else _make("build/gen/_declared.py")


def _library():
    named = os.environ.get("MHA_LIBRARY")
    return _make("build/libmha.so") if named is None else named


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel for this kind of machine and any Python 3."""
    library, settings = _library(), dict(config_settings or {})
    with _elsewhere(), _beside(library, "libmha.so"), _beside(_declarations(), "_declared.py"):
        if library:
            machine = re.sub(r"\W", "_", sysconfig.get_platform())
            settings["--build-option"] = [f"--plat-name={machine}"]
        return build_meta.build_wheel(wheel_directory, settings, metadata_directory)
