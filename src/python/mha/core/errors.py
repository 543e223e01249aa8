"""Exceptions. Errors of the C library also subclass the matching built-in exception."""
from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import Iterator, Mapping

from . import abi

DONE, NO, BAD_REQUEST, MACHINE, NOT_CHECKED = range(5)  # exit codes of commands, those of the program


class Error(Exception):
    """Something that the library refused or could not do.

    Attributes
    ----------
    status : str
        "invalid", "unsupported", "format", "not found", "i/o" or "no memory".
    name : str
        The argument, tensor, field or file at fault; "" for none.
    message : str
        One line: the expected and the found value.
    """

    def __init__(self, status: str, name: str, message: str, text: str) -> None:
        super().__init__(text)
        self.status, self.name, self.message = status, name, message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.status, self.name, self.message, str(self))


class InvalidError(Error, ValueError):
    """An argument, option or shape is wrong."""


class UnsupportedError(Error, ValueError):
    """A combination without meaning, or one that is not built in."""


class FormatError(Error, ValueError):
    """A file does not follow its format."""


class NotFoundError(Error, LookupError):
    """No such file, tensor or name; that of a file is also FileNotFoundError."""


class MissingFileError(NotFoundError, FileNotFoundError):
    """No such file."""


class MachineError(Error, OSError):
    """The machine could not read or write."""


class NoMemoryError(Error, MemoryError):
    """The machine could not give the memory."""


# In the order of abi.STATUS.
KINDS = (Error, InvalidError, UnsupportedError, FormatError, NotFoundError, MachineError, NoMemoryError)


# The library's names of arguments that are called otherwise here.
_OURS = {"kv-heads": "kv_heads"}


def error_of(status: int, error: abi.Error) -> Error:
    """The exception for a status and what the library says of it."""
    name, message = (text.decode("utf-8", "replace") for text in (error.name, error.message))
    name, message = _OURS.get(name, name), message.replace("--preset list shows", "mha.presets() has")
    text = f"{name}: {message}" if name and message else message or name or abi.STATUS[status]
    if error.offset and message:
        text += f" (byte {error.offset})"
    kind = MissingFileError if message.endswith(os.strerror(errno.ENOENT)) else KINDS[status]
    return kind(abi.STATUS[status], name, message, text)


@contextmanager
def typed(words: Mapping[str, str]) -> Iterator[None]:
    """Errors inside name an argument by the word that the caller typed: `words` has it by the word used within."""
    try:
        yield
    except (Error, TypeError, ValueError) as reason:
        word, colon, rest = str(reason).partition(":")
        stem = word.partition("[")[0]
        name = words.get(stem)
        if not colon or name is None:
            raise
        text = name + word[len(stem):] + colon + rest
        if isinstance(reason, Error):
            raise type(reason)(reason.status, name, reason.message, text) from None
        raise type(reason)(text) from None


def check(status: int, error: abi.Error) -> None:
    """Raises what a call of the library says, unless it says that all is well."""
    if status:
        error.status = status
        raise error_of(status, error)
