"""What a call adds to its scores, compared with the position bias of its layer: a number by head and distance."""
from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Optional

import numpy as np

from ..core import arrays as a
from ..core.layer import MultiHeadAttention
from ..core.reference import Meant
from ..judge.check import diagnose
from .calls import Asked

SCORES = 2**20  # of one batch row that are compared, at most: of longer calls the last queries


def compare(asked: Asked, layer: MultiHeadAttention, begin: int) -> Optional[tuple[str, tuple[str, ...]]]:
    """What the call adds in place of the bias of a layer, in words and by names of bugs; None: it adds that. begin:
    the position of its first query.

    The exact scores of queries and keys of zeros are the bias. A number of a row of the table is rounded once to the
    type of the call, and once more where a mask is added: 2 u of itself.
    """
    table = np.asarray(layer.weights["bias_table"], np.float64)
    B, h, T_q, S = asked.B, table.shape[1], asked.T_q, asked.S
    n = max(1, min(T_q, SCORES // (h * S)))
    rows = np.arange(T_q - n, T_q)
    zeros = np.zeros((1, h, n, 1)), np.zeros((1, h, S, 1)), np.zeros((1, h, S, 1))
    said = {"offset": begin + T_q - n, "position_bias": replace(layer.settings["position_bias"], table=table)}
    meant = np.asarray(Meant(*zeros, None, "BHTD", said).exact(("masked",))[1]["masked"], np.float64)
    added = np.zeros((B, h, n, S))
    if asked.added is not None:
        added[:] = asked.added.expand(-1, -1, T_q, S)[:, :, rows].double().numpy()
    seen = np.broadcast_to(asked.visible(rows), added.shape)
    unit = importlib.import_module("torch").finfo(asked.query.dtype).eps / 2
    off = seen & ~(np.abs(added - meant) <= 2 * unit * np.maximum(np.abs(added), np.abs(meant)))
    if not off.any():
        return None
    wrong = int(np.argwhere(off)[0][0])
    shown: a.Doubles = np.where(seen[wrong], added[wrong], -np.inf)[None]
    names = diagnose(None, *zeros, stages={"masked": shown}, tensor="masked", attn_mask=seen[wrong][None], **said).names
    return (f"the bias that the call adds is not the position bias of the layer: {int(off.sum()):,} of "
            f"{int(seen.sum()):,} visible scores differ, by {float(np.abs(added - meant)[off].max()):.3g}",
            tuple(names) or ("position-bias-other",))
