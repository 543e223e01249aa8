"""The module where it is installed: beside its library, with the system's, as a wheel; a library that does not fit."""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import ROOT

import mha

LIBRARY = os.environ["MHA_LIBRARY"]
MODULE = os.path.dirname(os.path.dirname(mha.__file__))
TRY = ("import numpy, mha; q = numpy.ones((1, 1, 2, 4), 'f4'); "
       "print(mha.scaled_dot_product_attention(q, q, q).sum(), mha.__version__, mha.__file__)")


def python(code, path, **env):
    """What python3 says in an empty folder; only `path` is searched beside its own packages."""
    env = {**os.environ, "PYTHONPATH": str(path), **env}
    return subprocess.run([sys.executable, "-c", code], env={k: v for k, v in env.items() if v is not None}, cwd="/",
                          capture_output=True, text=True)


def make(*arguments):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "LD_PRELOAD")}
    subprocess.run(["make", "-s", "-C", ROOT, f"BUILD={os.path.dirname(LIBRARY)}", *arguments], check=True, env=env,
                   capture_output=True)


def test_installed_without_pip(tmp_path):
    make("install-python", f"DESTDIR={tmp_path}", "pythondir=/lib")
    run = python(TRY, tmp_path / "lib", MHA_LIBRARY=None, LD_LIBRARY_PATH=os.path.dirname(LIBRARY))
    assert run.stdout.startswith("8.0 0.") and str(tmp_path) in run.stdout, run.stderr
    run = python("import mha", tmp_path / "lib", MHA_LIBRARY="/no/such/libmha.so")
    assert run.returncode and "found no library of mha" in run.stderr and "MHA_LIBRARY" in run.stderr
    make("uninstall-python", f"DESTDIR={tmp_path}", "pythondir=/lib")
    assert not os.path.exists(tmp_path / "lib" / "mha")


def test_sources_alone_say_what_is_missing():
    run = python("import mha", f"{ROOT}/src/python")
    assert run.stderr.strip().endswith("ImportError: mha: expected a built module, found its sources; run `make "
                                       "python` for build/python")


def test_another_version_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "other.c").write_text('const char *mha_version(void) { return "9.1.0"; }\n')
    other = tmp_path / "libmha.so"
    subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", other, tmp_path / "other.c"],
                   check=True, env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
    run = python("import mha", MODULE, MHA_LIBRARY=str(other))
    assert run.stderr.strip().endswith("expected mha 0.3.x, found 9.1.0; install library and module together")


def lacking(library, *names):
    """The error of importing mha with a library that needs others, which do not exist, is one sentence without a
    package name."""
    run = python("import mha", MODULE, MHA_LIBRARY=str(library))
    assert run.stderr.strip().endswith(f"ImportError: {library} needs {', '.join(names)}, which this machine lacks: "
                                       "install them, or build mha on this machine (`make deps` installs what it "
                                       "needs)")
    assert "During handling" not in run.stderr


def test_what_a_library_needs_is_named_in_one_sentence(tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    (tmp_path / "here").mkdir()
    for name, source, link in (
            ("libnowhere.so", "int nowhere(void) { return 1; }", ["-Wl,-soname,libnowhere.so.7"]),
            ("libneither.so", "int neither(void) { return 1; }", ["-Wl,-soname,libneither.so.2"]),
            ("here/libhere.so", "int here(void) { return 1; }", []),
            ("libmha.so", "int nowhere(void); int neither(void); int here(void); "
                          "int all(void) { return nowhere() + neither() + here(); }",
             [f"-L{tmp_path}", f"-L{tmp_path}/here", "-lnowhere", "-lneither", "-lhere", "-Wl,-rpath,$ORIGIN/here"])):
        (tmp_path / "source.c").write_text(source)
        subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", tmp_path / name,
                        tmp_path / "source.c", *link], check=True, env=env)
    lacking(tmp_path / "libmha.so", "libnowhere.so.7", "libneither.so.2")


def test_what_mha_needs_is_read_from_the_library(tmp_path):
    """The libraries as they were built, but for the names of two that libmha-lab needs."""
    held = pathlib.Path(LIBRARY.replace("libmha.so", "libmha-lab.so")).read_bytes()
    names = [name.decode() for name in re.findall(rb"(?<=\0)lib(?:jansson|zip)\.so\.\d+(?=\0)", held)]
    if not names:
        pytest.skip("the libraries contain jansson and libzip")
    assert sorted(name.partition(".")[0] for name in names) == ["libjansson", "libzip"]
    (tmp_path / "libmha.so").write_bytes(pathlib.Path(LIBRARY).read_bytes())
    (tmp_path / "libmha-lab.so").write_bytes(re.sub(rb"\0lib(jansson|zip)\.so\.", rb"\0LIB\1.so.", held))
    lacking(tmp_path / "libmha.so", *(name.replace("lib", "LIB") for name in names))


@pytest.mark.needs("setuptools", "wheel")
def test_wheel(tmp_path, monkeypatch):
    """The wheel carries the library, names its kind of machine, and leaves nothing behind in the sources."""
    before = subprocess.run(["git", "-C", ROOT, "status", "--porcelain"], capture_output=True, text=True).stdout
    code = f"import sys; sys.path.insert(0, 'src/python'); import build_backend as b; b.build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    wheel, = glob.glob(f"{tmp_path}/mha-*-py3-none-linux_*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {"mha/py.typed", "mha/core/abi.py", "mha/core/declared.py"} <= set(archive.namelist())
        assert len([name for name in archive.namelist() if re.match(r"mha/libmha(-lab)?\.so\.", name)]) == 2
        program, = [name for name in archive.namelist() if name.endswith(".data/scripts/mha")]
        assert archive.getinfo(program).external_attr >> 16 & 0o111 == 0o111
        assert b"mha.pytest_plugin" in archive.read(next(n for n in archive.namelist() if "entry_points" in n))
        archive.extractall(tmp_path / "site")
    run = python(TRY, tmp_path / "site", MHA_LIBRARY=None)
    assert run.stdout.startswith("8.0 0.") and str(tmp_path) in run.stdout, run.stderr
    assert subprocess.run(["git", "-C", ROOT, "status", "--porcelain"], capture_output=True, text=True).stdout == before
    left = ("mha/*.so", "mha/core/declared.py", "*.egg-info")
    assert not [name for pattern in left for name in glob.glob(f"{ROOT}/src/python/{pattern}")]


@pytest.mark.needs("setuptools", "wheel")
@pytest.mark.parametrize("lacks, said", [
    ("make", r"mha: building it needs make, which this machine lacks\. Debian, Ubuntu: apt install make"),
    ("cc", r"mha: building it needs cc, which this machine lacks\. Debian, Ubuntu: apt install gcc libc6-dev"),
    ("jansson", r"mha: building it needs libraries: jansson, which .*: apt install libjansson-dev"),
])
def test_what_building_needs_is_named_in_one_line(tmp_path, lacks, said):
    """Before anything is built: one line, no traceback, whatever the tool is."""
    here = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if "ccache" not in folder)
    for tool in "make cc pkg-config sh awk find sed git stat cut dirname echo python3".split():
        if tool != lacks and shutil.which(tool, path=here):
            (tmp_path / tool).symlink_to(shutil.which(tool, path=here))
    for library in ("openblas", "jansson", "libzip", "zlib", "nettle"):
        if library != lacks:
            (tmp_path / f"{library}.pc").write_text(f"Name: {library}\nDescription: -\nVersion: 1\nLibs: -l{library}\n")
    env = {"PATH": str(tmp_path), "PKG_CONFIG_LIBDIR": str(tmp_path)}
    code = "import sys; sys.path.insert(0, 'src/python'); import build_backend as b; b.get_requires_for_build_wheel()"
    run = subprocess.run([sys.executable, "-B", "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)
    lines = [line for line in run.stderr.splitlines() if "Warning" not in line]
    assert run.returncode == 1 and len(lines) == 1 and re.match(said, lines[0]), run.stderr


@pytest.mark.needs("setuptools")
def test_sdist(tmp_path):
    """The sdist has all that make needs to build the library, and nothing that was built."""
    code = f"import sys; sys.path.insert(0, 'src/python'); import build_backend as b; b.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    name, = glob.glob(f"{tmp_path}/mha-*.tar.gz")
    with tarfile.open(name) as archive:
        archive.extractall(tmp_path)
    root = name[:-len(".tar.gz")]
    assert "\nName: mha\n" in pathlib.Path(root, "PKG-INFO").read_text(encoding="utf-8")
    held = {os.path.relpath(os.path.join(folder, file), root) for folder, _, files in os.walk(root) for file in files}
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "src", "include"], capture_output=True, text=True).stdout
    expected = {"Makefile", "pyproject.toml", "src/python/mha/core/declared.py", "include/mha/mha.h"}
    assert {*expected, *listed.split()} <= held
    assert not [file for file in held if file.endswith((".so", ".o", ".pyc"))]
    env = {"PATH": os.environ["PATH"]}  # nothing of the make that runs this test
    subprocess.run(["make", "-n", "-C", root, "build/libmha.so"], check=True, env=env, capture_output=True)


def test_nothing_but_numpy_is_imported():
    run = python("import sys, mha; print([m for m in ('torch', 'jax', 'hypothesis', 'pytest', 'ml_dtypes', 'pandas') "
                 "if m in sys.modules])", MODULE)
    assert run.stdout.strip() == "[]", run.stderr
