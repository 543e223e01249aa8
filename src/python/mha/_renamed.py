"""Names of 0.3 that 0.4 renamed: each raises an error with the new name, until 0.5."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Callable, ClassVar, Mapping, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])

MODULE = {"Answer": "Result", "questions": "conformance.suite", "settings": "core.settings", "variants": "bugs"}
TESTING = {"MISTAKES": "BUGS"}


def missing(owner: str, name: str, new: Mapping[str, str]) -> AttributeError:
    """The error of an attribute that `owner` lacks, with its new name if it was renamed."""
    renamed = f": renamed to {new[name]!r} in 0.4" if name in new else ""
    return AttributeError(f"{owner} has no attribute {name!r}{renamed}")


class Renamed:
    """Base of a class with renamed attributes."""

    _RENAMED: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> object:
            raise missing(f"{type(self).__name__!r} object", name, self._RENAMED)


def keywords(**new: str) -> Callable[[F], F]:
    """Decorates a function with renamed parameters: raises TypeError with the new name where an old one is given."""
    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: object, **given: object) -> object:
            for old in new.keys() & given.keys():
                raise TypeError(f"{old}: expected {new[old]}, its name since 0.4, found {old}")
            return function(*args, **given)
        return cast(F, call)
    return decorate
