"""Multi-head attention as a reference computes it, for arrays of numpy, PyTorch and JAX.

    mha.scaled_dot_product_attention(query, key, value, is_causal=True)      PyTorch's signature
    mha.attention(q, k, v, causal=True)                                      flash-attn's conventions
    mha.MultiHeadAttention(512, 8)(x)                                        a layer, or .from_torch, .from_file
    mha.diagnose(mine, query, key, value, is_causal=True)                    which known bug is it?
    mha.testing.assert_attention_close(mine, query, key, value)              the checker in a test
    mha.conform(kernel, has={"causal", "gqa"})                               is this kernel right?
    mha.Model.from_preset("gpt2"), .from_torch(model), mha.load(path)        parameters, layers, files

src/python/README.md shows each of them at work.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ._renamed import MODULE, missing
from .core.library import __version__

if TYPE_CHECKING:
    from . import testing, transformers
    from .conformance.conform import TestCase, conform, test_cases
    from .conformance.reduce import Reduced
    from .conformance.report import Report, Result
    from .conformance.suite import NEEDS
    from .core.backward import attention_backward
    from .core.cache import Cache
    from .core.errors import (Error, FormatError, InvalidError, MachineError, NoMemoryError, NotFoundError,
                              UnsupportedError)
    from .core.files import File, load, save
    from .core.functional import attention, scaled_dot_product_attention
    from .core.layer import MultiHeadAttention
    from .core.merging import merge
    from .core.pages import paged_attention, paged_attention_backward
    from .core.parameters import Parameter, Parameters, Totals
    from .core.semantics import Bias, Relative, Rope, window_segments
    from .core.settings import SETTINGS
    from .core.tables import Table
    from .core.trace import Trace
    from .judge.check import Diagnosis, GradientDiagnosis, Match, StageVerdict, Verdict, bugs, check, diagnose
    from .judge.tolerance import Tolerance, tolerance
    from .models.caches import CacheKind, Caches, EngineLog
    from .models.explain import ConfigDifference, Explanation, KeyEffect, LayerKind, LayerValue, explain
    from .models.model import Costs, LayerLengths, ModelLayer, count, presets
    from .torch.live import LiveModel, Model, StoredTensor
    from .torch.report import Finding, Watched
    from .torch.watch import Watch, watch

__all__ = ["Bias", "Cache", "CacheKind", "Caches", "ConfigDifference", "Costs", "Diagnosis", "EngineLog", "Error",
           "Explanation", "File", "Finding", "FormatError", "GradientDiagnosis", "InvalidError", "KeyEffect",
           "LayerKind", "LayerLengths", "LayerValue", "LiveModel", "MachineError", "Match", "Model", "ModelLayer",
           "MultiHeadAttention", "NEEDS", "NoMemoryError", "NotFoundError", "Parameter", "Parameters", "Reduced",
           "Relative", "Report", "Result", "Rope", "SETTINGS", "StageVerdict", "StoredTensor", "Table", "TestCase",
           "Tolerance", "Totals", "Trace", "UnsupportedError", "Verdict", "Watch", "Watched", "__version__",
           "attention", "attention_backward", "bugs", "check", "conform", "count", "diagnose", "explain", "load",
           "merge", "paged_attention", "paged_attention_backward", "presets", "save", "scaled_dot_product_attention",
           "test_cases", "testing", "tolerance", "transformers", "watch", "window_segments"]

# The module of each public name. A module is imported, and its tables are read, when one of its names is first used.
_HOMES = {
    "core.backward": "attention_backward", "core.cache": "Cache",
    "core.errors": "Error FormatError InvalidError MachineError NoMemoryError NotFoundError UnsupportedError",
    "core.files": "File load save", "core.functional": "attention scaled_dot_product_attention",
    "core.layer": "MultiHeadAttention", "core.merging": "merge",
    "core.pages": "paged_attention paged_attention_backward", "core.parameters": "Parameter Parameters Totals",
    "core.semantics": "Bias Relative Rope window_segments", "core.settings": "SETTINGS", "core.tables": "Table",
    "core.trace": "Trace", "judge.check": "Diagnosis GradientDiagnosis Match StageVerdict Verdict bugs check diagnose",
    "conformance.conform": "TestCase conform test_cases", "conformance.reduce": "Reduced",
    "conformance.report": "Report Result", "conformance.suite": "NEEDS", "judge.tolerance": "Tolerance tolerance",
    "models.caches": "CacheKind Caches EngineLog",
    "models.explain": "ConfigDifference Explanation KeyEffect LayerKind LayerValue explain",
    "models.model": "Costs LayerLengths ModelLayer count presets", "torch.live": "LiveModel Model StoredTensor",
    "torch.report": "Finding Watched", "torch.watch": "Watch watch"}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    def __getattr__(name: str) -> object:
        """Imports the module of a name, or a public module."""
        if name in MODULE or (name not in _HOME and name.startswith("_")):
            raise missing(f"module {__name__!r}", name, MODULE)
        path = f"{__name__}.{_HOME.get(name, name)}"
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as reason:
            if reason.name != path:
                raise
            raise missing(f"module {__name__!r}", name, MODULE) from None
        value = globals()[name] = getattr(module, name) if name in _HOME else module
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
