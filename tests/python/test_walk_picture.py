"""The picture of the steps of a head, which the manual shows, is what the program draws."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("MHA_PROGRAM") or ROOT / "build" / "mha")


@pytest.mark.skipif(not os.path.exists(PROGRAM), reason="the program is not built")
def test_the_picture_is_what_the_program_draws(tmp_path):
    made = tmp_path / "walk.svg"
    subprocess.run([sys.executable, ROOT / "weights" / "make_walk.py", PROGRAM, made], check=True)
    kept = ROOT / "weights" / "induction" / "walk.svg"
    assert made.read_bytes() == kept.read_bytes(), f"{kept}: weights/make_walk.py draws another picture"
    assert "weights/induction/walk.svg" in (ROOT / "src/manual/howto/look.md").read_text(encoding="utf-8")
