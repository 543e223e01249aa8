"""Where failed assertions save their cases."""
from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Callable, Optional

from ._library import program
from .errors import Error

_MOST_SAVED = 10  # cases that one process saves
_saved: dict[str, Any] = {"folder": None, "count": 0, "own": None}


def save_failures(folder: Optional[str]) -> None:
    """Where failed assertions save their cases; None: a temporary folder, made at the first of them."""
    _saved["folder"], _saved["count"] = folder, 0


def _folder() -> str:
    folder = _saved["folder"] or os.environ.get("MHA_SAVE_FAILURES") or _saved["own"]
    if folder is None:
        folder = _saved["own"] = tempfile.mkdtemp(prefix="mha-failures-")
    os.makedirs(folder, exist_ok=True)
    return str(folder)


def save(write: Callable[[str], None]) -> str:
    """Saves a case, and says in one line where it is and what looks at it: the program, where there is one."""
    if _saved["count"] >= _MOST_SAVED:
        return f"case not saved: {_MOST_SAVED} are, the last in {_folder()}"
    _saved["count"] += 1
    path = os.path.join(_folder(), f"failed-{os.getpid()}-{_saved['count']}.safetensors")
    try:
        write(path)
    except (Error, OSError) as reason:
        return f"case not saved: {reason}"
    command = "mha" if shutil.which("mha") else program()
    if command is None:
        return f"case saved: mha.check({path!r}); mha.diagnose({path!r})"
    return f"case saved: {command} check {path}; {command} diagnose {path}"
