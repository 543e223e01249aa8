"""The packages that make installs, and the ones that a target of make misses; apt, dpkg and sudo are replaced."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

APT = "apt-get install -y --no-install-recommends"
# A command of the machine that the script starts: it writes its arguments to the log, then runs these lines.
FAKES = {
    "id": "echo $USER_ID",
    "dpkg-query": 'for name; do grep -qx "$name" "$HERE/installed" && echo installed; done; true',
    "apt-cache": 'case "$1 $2" in "show libclang-rt-dev") exit 1 ;; search*) echo libclang-rt-14-dev - runtime ;; esac',
    "apt-get": 'echo Unpacking everything; [ "$FAILS" != $1 ] || exit 100; '
               'for name; do case $name in -*) ;; *) echo "$name" >>"$HERE/installed" ;; esac; done',
    "sudo": '"$@"',
}
TOOLS = "sh make awk sed grep cut sort tail head find env cat rm mktemp stat dirname nproc cc pkg-config".split()


@pytest.fixture
def machine(tmp_path):
    """Runs a command on a machine that has some packages, and no programs but TOOLS and some of FAKES."""
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    (tmp_path / "installed").write_text("")

    def run(*command, fakes=("id", "dpkg-query", "apt-cache", "apt-get"), uid=0, fails=""):
        for name in fakes:
            fake = tmp_path / "bin" / name
            fake.write_text(f'#!/bin/sh\necho "{name} $*" >>"$HERE/log"\n{FAKES[name]}\n')
            fake.chmod(0o755)
        env = {"PATH": str(tmp_path / "bin"), "HERE": str(tmp_path), "USER_ID": str(uid), "FAILS": fails,
               "PYTHON": "false"}
        (tmp_path / "log").write_text("")
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
        return done, (tmp_path / "log").read_text()
    run.has = lambda *names: (tmp_path / "installed").write_text("".join(f"{name}\n" for name in names))
    return run


def script(machine, group, **settings):
    return machine("sh", "tests/deps.sh", group, **settings)


def group(machine, name):
    """All packages of a group, in the command that a machine without any prints."""
    done, _ = script(machine, name, uid=1)
    return re.search(re.escape(APT) + r" ([^\n\"]*)", done.stderr)[1].split()


def test_root_and_a_user_of_sudo_get_what_is_missing(machine):
    for fakes, settings in (((), {}), (("sudo",), {"uid": 1})):
        machine.has("gcc", "python3-numpy")
        done, log = script(machine, "deps", fakes=("id", "dpkg-query", "apt-cache", "apt-get", *fakes), **settings)
        assert done.returncode == 0 and not done.stderr, done.stderr
        said, = done.stdout.splitlines()  # no line of apt-get
        assert re.match(r"deps: installing g\+\+ .*python3-venv$", said) and " gcc" not in said
        runs = [line for line in log.splitlines() if line.startswith("apt-get")]
        assert [run.split()[1] for run in runs] == ["update", "install"] and runs[1].endswith(said.partition("g++")[2])
        assert log.count("sudo ") == 2 * len(fakes)
        done, log = script(machine, "deps", **settings)
        assert done.stdout == "deps: everything is installed\n" and "apt-get" not in log


def test_a_user_without_sudo_reads_the_command_of_root(machine):
    machine.has("gcc")
    done, log = script(machine, "deps", uid=1)
    assert done.returncode == 1 and not done.stdout and "apt-get" not in log
    said, command = done.stderr.splitlines()
    assert said == "deps: packages are missing, and there is no sudo to install them; as root, run"
    assert re.match(r"apt-get update && " + APT + r" g\+\+ libc6-dev .*python3-venv$", command)
    subprocess.run(["sh", "-n", "-c", command], check=True)


@pytest.mark.parametrize("fails", ["update", "install"])
def test_the_output_of_apt_is_shown_when_it_fails(machine, fails):
    done, _ = script(machine, "deps", fails=fails)
    assert done.returncode == 1 and done.stderr.startswith("Unpacking everything\ndeps: ")
    assert f"&& {APT} gcc g++ " in done.stderr.splitlines()[-1]


def test_an_older_name_of_a_package(machine):
    done, log = script(machine, "deps-dev")
    assert done.returncode == 0 and re.search(r"apt-get install .* clang libclang-rt-14-dev libomp-dev ", log)


def test_deps_dev_has_what_every_group_has(machine):
    everything = group(machine, "deps-dev")
    assert len(everything) == len(set(everything)) and {"debootstrap", "git", "xz-utils"} <= set(everything)
    for name in ("deps", "docs", "sdist", "wheel", "deb"):
        assert set(group(machine, name)) <= set(everything), name
    assert group(machine, "docs") == ["python3-sphinx", "python3-myst-parser", "furo", "mandoc"]


def test_packages_of_debian_need_what_their_control_file_says(machine):
    control = pathlib.Path(ROOT, "src/packaging/debian/control").read_text(encoding="utf-8")
    provides = {"debhelper-compat": "debhelper", "dh-sequence-python3": "dh-python", "python3": "python3-numpy"}
    named = re.findall(r"^ ([a-z0-9+.-]+)", re.search(r"Build-Depends:\n((?: .*\n)+)", control)[1], re.M)
    assert len(named) > 10 and {provides.get(name, name) for name in named} <= set(group(machine, "deb"))


@pytest.mark.parametrize("target, first, last", [
    ("docs", "python3-sphinx", "mandoc"), ("sdist", "python3-setuptools", "python3-wheel"),
    ("wheel", "python3-setuptools", "cmake"), ("deb", "gcc", "cmake"),
])
def test_a_target_names_what_it_needs_before_anything_is_done(machine, tmp_path, target, first, last):
    done, _ = machine("make", "-j2", f"BUILD={tmp_path}/build", f"DIST={tmp_path}/dist", "PYTHON=false", target)
    assert done.returncode == 2 and not (tmp_path / "build").exists() and not (tmp_path / "dist").exists()
    said, = done.stderr.splitlines()
    assert re.search(rf'\*\*\* {target}: "{APT} {first} .*{last}" \(as root\) installs what is missing\.', said), said


def test_help_lists_every_target_that_has_a_line(machine):
    lists = [machine("make", "-s", target)[0].stdout for target in ("help", "help-dev")]
    listed = [re.findall(r"^  make (\S+)  +\S", text, re.M) for text in lists]
    makes = [pathlib.Path(ROOT, "Makefile"), *(path for folder in ("src", "tests", "bench")
                                               for path in pathlib.Path(ROOT, folder).rglob("*.mk"))]
    named = re.findall(r"^([\w-]+):[^\n]*## ", "\n".join(path.read_text(encoding="utf-8") for path in makes), re.M)
    assert sorted(named) == sorted(listed[0] + listed[1]) and len(set(named)) == len(named)
    assert {"deps", "demo", "test", "install"} <= set(listed[0]) and "wheel-aarch64" in listed[1]
