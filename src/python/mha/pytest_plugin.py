"""A plugin of pytest: --mha-save-failures DIR says where failed assertions of mha.testing save their cases."""
from __future__ import annotations

from typing import Any

_OPTION = "--mha-save-failures"


def pytest_addoption(parser: Any) -> None:
    """Adds the option."""
    parser.getgroup("mha").addoption(_OPTION, metavar="DIR", default=None,
                                     help="save the case of each failed assert_attention_close in DIR")


def pytest_configure(config: Any) -> None:
    """Hands the folder on; the library is not loaded for less."""
    folder = config.getoption(_OPTION)
    if folder:
        from . import testing

        testing.save_failures(folder)
