"""Explanations of configurations: values of layers with the keys that decide them, and keys without effect."""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import tempfile
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Optional, Union

from ..core import arrays as a
from ..core.files import path_of
from ..core.library import create, lib
from .model import HasConfig

Source = Union[a.Path, Mapping[str, object], HasConfig]


@dataclass(frozen=True)
class LayerValue:
    """One value of an attention layer, as a forward pass reads it.

    Attributes
    ----------
    name : str
        Field of a layer or setting of a call: "d_k", "window_left", ...
    value : bool, int, float, str, list or None
        None: not given.
    keys : tuple of str
        Keys of the configuration that decide it.
    defaults : tuple of str
        Keys that the configuration lacks, whose defaults decide it.
    """

    name: str
    value: object
    keys: tuple[str, ...]
    defaults: tuple[str, ...]


@dataclass(frozen=True)
class LayerKind:
    """Attention layers with equal values.

    Attributes
    ----------
    prefix : str
        Beginning of the names of their tensors, with {i} for the block.
    layers, blocks : tuple of int
        Indices of the layers, and their blocks.
    uses : int
        How often a forward pass runs each.
    cached_rows : int or None
        Keys that a cache keeps; None: all; 0: no cache.
    cached_width, latent_width : int
        Elements of a cached key and its value, and of a latent instead of them.
    cross : bool
        Whether keys come from an encoder.
    caveat, not_run : str or None
        Properties that one layer lacks, and why mha does not compute the attention.
    values : dict from str to LayerValue
        The values by name.
    """

    prefix: str
    layers: tuple[int, ...]
    blocks: tuple[int, ...]
    uses: int
    cached_rows: Optional[int]
    cached_width: int
    latent_width: int
    cross: bool
    caveat: Optional[str]
    not_run: Optional[str]
    values: dict[str, LayerValue]


@dataclass(frozen=True)
class KeyEffect:
    """The effect of a key of the configuration.

    Attributes
    ----------
    key : str
        Its name; members of objects after a dot.
    value : object
        Its value.
    effect : str
        "values", "layers" (how many run), "tensors" (others), "none" or "unknown" (no known reader uses it).
    values : tuple of str
        The values that it decides.
    reason : str or None
        Why it is without effect.
    """

    key: str
    value: object
    effect: str
    values: tuple[str, ...]
    reason: Optional[str]


@dataclass(frozen=True)
class ConfigDifference:
    """A difference of two configurations.

    Attributes
    ----------
    name : str
        LayerValue of layers, or key.
    layers : tuple of int
        The layers; () for the whole model.
    value, against : object
        What both have; None: nothing.
    """

    name: str
    layers: tuple[int, ...]
    value: object
    against: object


@dataclass(frozen=True)
class Explanation:
    """What mha.explain found.

    Attributes
    ----------
    architecture, model_type : str
        The family.
    attention_layers : int
        Their number.
    kinds : tuple of LayerKind
        Kinds of attention layers.
    keys : dict from str to KeyEffect
        Keys of the configuration.
    differences : tuple of ConfigDifference
        Differences that change numbers; without `against` ().
    other_keys : tuple of ConfigDifference
        Keys with other values in the second configuration.
    """

    architecture: str
    model_type: str
    attention_layers: int
    kinds: tuple[LayerKind, ...]
    keys: dict[str, KeyEffect]
    differences: tuple[ConfigDifference, ...]
    other_keys: tuple[ConfigDifference, ...]


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record with tuples for its lists, but the value of a layer or key as it is."""
    return {name: tuple(field) if isinstance(field, list) and name not in ("value", "against") else field
            for name, field in row.items()}


@contextlib.contextmanager
def _named(name: str, source: Source) -> Iterator[Optional[bytes]]:
    """The path of a source, or the name of a preset; a dict is written to a file first."""
    if isinstance(source, HasConfig):
        source = source.to_dict()
    if not isinstance(source, Mapping):
        yield path_of(name, source)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            try:
                json.dump(dict(source), file)
            except TypeError as reason:
                raise TypeError(f"{name}: expected what JSON can hold, found {reason}") from None
        yield path_of(name, path)


def explain(source: Source, against: Optional[Source] = None) -> Explanation:
    """Explain a configuration: the values of its attention layers, and the keys that decide them.

    Parameters
    ----------
    source : path_like, dict or configuration of transformers
        A config.json or its folder, a GGUF file, the name of a preset, or the parsed JSON.
    against : path_like, dict or configuration of transformers, default None
        Second configuration, with which it is compared.

    Returns
    -------
    Explanation
        Kinds of layers, keys and differences.

    Raises
    ------
    TypeError, ValueError
        A configuration is wrong, or its model type is unknown.
    mha.Error
        mha cannot read a file.

    Examples
    --------
    >>> config = {"model_type": "qwen3", "sliding_window": 2048, "use_sliding_window": False}
    >>> mha.explain(config).keys["sliding_window"].reason
    'use_sliding_window is false'
    """
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(_named("source", source))
        two = None if against is None else stack.enter_context(_named("against", against))
        made = create("explanation", lib.mha_config_explanation_destroy, lib.mha_explain, one, two)
    report = json.loads(lib.mha_config_explanation_json(made.address))
    kinds = []
    for kind in report["kinds"]:
        fields = _frozen(kind)
        fields["values"] = {row["name"]: LayerValue(**_frozen(row)) for row in kind["values"]}
        kinds.append(LayerKind(**fields))
    both = {name: tuple(ConfigDifference(**_frozen(row)) for row in rows)
            for name, rows in report.get("differences", {"numbers": (), "keys": ()}).items()}
    return Explanation(report["architecture"], report["model_type"], report["attention_layers"], tuple(kinds),
                       {row["key"]: KeyEffect(**_frozen(row)) for row in report["keys"]}, both["numbers"],
                       both["keys"])
