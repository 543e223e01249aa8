"""Multi-head attention as a reference computes it, for arrays of numpy, PyTorch and JAX.

    mha.scaled_dot_product_attention(query, key, value, is_causal=True)      PyTorch's signature
    mha.attention(q, k, v, causal=True)                                      flash-attn's dialect
    mha.MultiHeadAttention(512, 8)(x)                                        a layer, or .from_torch, .from_file
    mha.diagnose(mine, query, key, value, is_causal=True)                    which named mistake is it?
    mha.testing.assert_attention_close(mine, query, key, value)              the judge in a test
    mha.conform(kernel, has={"causal", "gqa"})                               is this kernel right?
    mha.Model.from_preset("gpt2"), .from_torch(model), mha.load(path)        parameters, layers, files

src/python/README.md shows each of them at work.
"""
from . import testing, transformers
from ._library import __version__
from .backward import attention_backward
from .cache import Cache
from .conform import Answer, Report, conform
from .errors import (Error, FormatError, InvalidError, MachineError, NoMemoryError, NotFoundError, UnsupportedError)
from .files import File, load, save
from .functional import attention, scaled_dot_product_attention
from .judge import Diagnosis, Verdict, check, diagnose, variants
from .layer import MultiHeadAttention
from .live import LiveModel
from .merge import merge
from .model import Model, count, presets
from .pages import paged_attention, paged_attention_backward
from .parameters import Parameter, Parameters, Totals
from .questions import NEEDS
from .semantics import Bias, Relative, Rope, window_segments
from .settings import SETTINGS
from .tables import Table
from .trace import Trace
from .watch import Watch, watch

__all__ = ["Answer", "Bias", "Cache", "Diagnosis", "Error", "File", "FormatError", "InvalidError",
           "LiveModel", "MachineError", "Model", "MultiHeadAttention", "NEEDS", "NoMemoryError", "NotFoundError",
           "Parameter", "Parameters", "Relative", "Report", "Rope", "SETTINGS", "Table", "Totals", "Trace",
           "UnsupportedError", "Verdict", "Watch", "__version__", "attention", "attention_backward", "check",
           "conform", "count", "diagnose", "load", "merge", "paged_attention", "paged_attention_backward",
           "presets", "save", "scaled_dot_product_attention", "testing", "transformers", "variants", "watch",
           "window_segments"]
