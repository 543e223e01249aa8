"""Builds the wheel and the sdist with setuptools; the wheel carries the two libraries and the program.

They are built with make, or are the library that MHA_LIBRARY names and the files next to it; an empty MHA_LIBRARY
makes a wheel without them, which uses those of the system. MHA_PLATFORM is the tag of machines on which they run,
MHA_LICENCES a folder of licences of what is inside. The version is that of include/mha/system.h, and so is the date of
every file, unless SOURCE_DATE_EPOCH says another: the same sources and tools give the same bytes.
"""
import contextlib
import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile

from setuptools import build_meta
from wheel.wheelfile import WheelFile

TREE = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "pyproject.toml",
        "bench", "include", "src", "tests", "weights")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODULE = os.path.join(ROOT, "src", "python", "mha")

with open(os.path.join(ROOT, "include", "mha", "system.h"), encoding="utf-8") as header:
    VERSION = ".".join(re.findall(r"define MHA_VERSION_\w+ (\d+)", header.read()))

SERIES = VERSION.rpartition(".")[0] if VERSION.startswith("0.") else VERSION.partition(".")[0]  # of the sonames

os.environ.setdefault("SOURCE_DATE_EPOCH", str(int(os.path.getmtime(header.name))))
DATE = int(os.environ["SOURCE_DATE_EPOCH"])

# Debian's names of what building needs: of tools, and of libraries as pkg-config knows them.
TOOLS = {"make": "make", "cc": "gcc libc6-dev", "pkg-config": "pkg-config"}
LIBRARIES = {"openblas": "libopenblas-dev", "jansson": "libjansson-dev", "libzip": "libzip-dev", "zlib": "zlib1g-dev",
             "nettle": "nettle-dev"}


def _dated(member):
    """Leaves out who built when."""
    member.mtime, member.uid, member.gid, member.uname, member.gname = DATE, 0, 0, "", ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _source(member):
    """Leaves out what Python or a build left in the tree, too."""
    name = os.path.basename(member.name)
    left = name in ("__pycache__", "declared.py") or name.endswith(".pyc") or ".so" in name
    return None if left else _dated(member)


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


def _expect(kind, needed, lacks):
    missing = [name for name in needed if lacks(name)]
    if missing:
        raise SystemExit(f"mha: building it needs {kind}{' '.join(missing)}, which this machine lacks. Debian, Ubuntu: "
                         f"apt install {' '.join(needed[name] for name in missing)}")


def _expect_tools():
    """SystemExit with one line that names what is missing."""
    compiler = os.environ.get("CC", "cc").split()[0]
    _expect("", TOOLS, lambda tool: not shutil.which(compiler if tool == "cc" else tool))
    lacking = subprocess.run(["make", "-s", "lacking"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    _expect("libraries: ", LIBRARIES, lacking.split().__contains__)


def get_requires_for_build_sdist(config_settings=None):
    """Nothing besides pyproject.toml."""
    return []


def get_requires_for_build_wheel(config_settings=None):
    """Nothing that pip installs; what it does not is missed here, before anything is built."""
    if "MHA_LIBRARY" not in os.environ:
        _expect_tools()
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """The wheel's metadata."""
    with _elsewhere():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_sdist(sdist_directory, config_settings=None):
    """All of TREE, from which make builds the library."""
    root = f"mha-{VERSION}"
    path = os.path.join(sdist_directory, root + ".tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        info = prepare_metadata_for_build_wheel(folder)
        with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, DATE) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as sdist:
            for name in TREE:
                sdist.add(os.path.join(ROOT, name), f"{root}/{name}", filter=_source)
            sdist.add(_declarations(), f"{root}/src/python/mha/core/declared.py", filter=_dated)
            sdist.add(os.path.join(folder, info, "METADATA"), f"{root}/PKG-INFO", filter=_source)
    return root + ".tar.gz"


def _make(target):
    """The path of what make builds."""
    subprocess.run(["make", "-s", f"-j{os.cpu_count() or 1}", f"PYTHON={sys.executable}", target], cwd=ROOT, check=True)
    return os.path.join(ROOT, target)


@contextlib.contextmanager
def _beside(path, name):
    """A copy of a file among the module's own, if there is one and it is not there yet."""
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
    """What the module knows of the headers. An sdist has it, and then needs no compiler for a wheel without a library;
    it is next to a library that is named."""
    named = os.environ.get("MHA_LIBRARY")
    places = (os.path.join(MODULE, "core", "declared.py"),
              os.path.join(os.path.dirname(named), "gen", "declared.py") if named else "")
    return next((path for path in places if os.path.exists(path)), None) or _make("build/gen/declared.py")


def _built(target, folder):
    """What make builds, without symbols for a debugger."""
    stripped = os.path.join(folder, os.path.basename(target))
    shutil.copyfile(_make(target), stripped)
    subprocess.run(["strip", stripped], check=True)
    return stripped


def _finish(path, extra):
    """Puts the same bytes into a wheel for the same contents, whoever unpacked the sources, and more files."""
    with zipfile.ZipFile(path) as wheel:
        contents = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/RECORD")}
        info = next(name for name in contents if name.endswith(".dist-info/METADATA")).partition("/")[0]
    for name, file in extra.items():
        with open(file, "rb") as data:
            contents[name.replace("INFO", info)] = data.read()
    with WheelFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.compresslevel = 9
        for name in sorted(contents, key=lambda name: (name.startswith(info), name)):
            member = zipfile.ZipInfo(name, time.gmtime(max(DATE, 315532800))[:6])
            member.external_attr = (0o100755 if contents[name].startswith(b"\x7fELF") else 0o100644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(member, contents[name])


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel for this kind of machine and any Python 3."""
    named, licences, settings = os.environ.get("MHA_LIBRARY"), os.environ.get("MHA_LICENCES"), {}
    with tempfile.TemporaryDirectory() as folder, _elsewhere():
        if named is None:
            _expect_tools()
            core, lab, program = (_built(f"build/{name}", folder) for name in ("libmha.so", "libmha-lab.so", "mha"))
        else:
            core, lab, program = (named and os.path.join(os.path.dirname(named), name)
                                  for name in (os.path.basename(named), "libmha-lab.so", "mha"))
        if core:
            machine = os.environ.get("MHA_PLATFORM") or re.sub(r"\W", "_", sysconfig.get_platform())
            settings["--build-option"] = [f"--plat-name={machine}"]
        extra = {f"mha-{VERSION}.data/scripts/mha": program} if program and os.path.exists(program) else {}
        for name in sorted(os.listdir(licences)) if licences else ():
            extra[f"INFO/licenses/{name}"] = os.path.join(licences, name)
        with _beside(core, f"libmha.so.{SERIES}"), _beside(lab, f"libmha-lab.so.{SERIES}"), \
                _beside(_declarations(), os.path.join("core", "declared.py")):
            wheel = build_meta.build_wheel(wheel_directory, {**(config_settings or {}), **settings}, metadata_directory)
        _finish(os.path.join(wheel_directory, wheel), extra)
    return wheel
