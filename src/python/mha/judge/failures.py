"""Saves the cases of failed assertions, if a folder is given."""
from __future__ import annotations

import os
import shutil
from typing import Callable, Optional

from ..core.errors import Error
from ..core.library import program

_MOST_SAVED = 10  # cases that one process saves
_folder: list[str] = []  # at most one
_names: list[str] = []  # of the cases that are saved


def save_failures(folder: Optional[str]) -> None:
    """Set the folder where failed assertions save their cases.

    Parameters
    ----------
    folder : str or None
        The folder; None: that of the environment variable MHA_SAVE_FAILURES, without which mha saves no case.

    Examples
    --------
    >>> mha.testing.save_failures(None)
    """
    _folder[:] = [] if folder is None else [folder]
    _names.clear()


def save(write: Callable[[str], None]) -> str:
    """Saves a case if a folder is given. Returns one line: how to look at the case, or how to have it saved."""
    folder = _folder[0] if _folder else os.environ.get("MHA_SAVE_FAILURES")
    if not folder:
        return "to save the case: MHA_SAVE_FAILURES=DIR, or pytest --mha-save-failures DIR"
    if len(_names) >= _MOST_SAVED:
        return f"case not saved: {_MOST_SAVED} are, the last in {folder}"
    _names.append(f"failed-{os.getpid()}-{len(_names) + 1}.safetensors")
    path = os.path.join(folder, _names[-1])
    try:
        os.makedirs(folder, exist_ok=True)
        write(path)
    except (Error, OSError) as reason:
        return f"case not saved: {reason}"
    command = "mha" if shutil.which("mha") else program()
    if command is None:
        return f"case saved: mha.check({path!r}); mha.diagnose({path!r})"
    return f"case saved: {command} check {path}; {command} diagnose {path}"


def opening(msg: Optional[str]) -> list[str]:
    """The first lines of an AssertionError: the caller's, if any."""
    if msg is not None and not isinstance(msg, str):
        raise TypeError(f"msg: expected a text, found {type(msg).__name__}")
    return [msg] if msg else []
