"""A running model watched: every attention call checked on the very inputs it got, layer by layer and head by head."""
from __future__ import annotations

import functools
import importlib
import os
import time
from contextlib import contextmanager
from typing import Callable, Iterator, Mapping, Optional, Sequence, Union

from ..core import arrays as a
from ..core.devices import host
from ..core.errors import Error
from . import call_check as j
from . import backward_check
from .call_check import Checked
from .calls import Asked, NotChecked, Said
from .configured import Intended, Parted
from .hooks import Returned
from .listening import BackwardRun, Seams
from .report import Finding, Watched, WatchReport


Named = Union[Sequence[str], Mapping[str, Said]]  # modules that are calls themselves


class Watch(WatchReport):
    """A model under watch, see mha.watch. True if `passed`.

    Parameters
    ----------
    model, sample, dtype, save, most_findings, config, backward, modules, maps
        As in mha.watch.

    Attributes
    ----------
    layers : dict from str to mha.Watched
        Layers by the names of their modules, in the order of their first calls.
    findings : list of mha.Finding
        Faults in the order in which the model ran.
    saved : str or None
        Path of the saved case.
    seconds, checking : float
        Seconds under watch, and those that the checks took.

    Raises
    ------
    TypeError, ValueError
        As in mha.watch.

    Examples
    --------
    >>> import torch
    >>> layer, x = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval(), torch.randn(2, 5, 16)
    >>> with mha.watch(layer) as w:
    ...     y, _ = layer(x, x, x)
    >>> isinstance(w, mha.Watch), w.first is None, w.layers[""].checked
    (True, True, 1)
    """

    def __init__(self, model: a.Module, *, sample: Optional[int] = None, dtype: Optional[a.Type] = None,
                 save: Optional[a.Path] = None, most_findings: int = 16, config: bool = True, backward: bool = False,
                 modules: Named = (), maps: bool = False) -> None:
        if not callable(getattr(model, "named_modules", None)):
            raise TypeError(f"model: expected a torch.nn.Module, found {type(model).__name__}")
        self._sample, self._dtype, self._save = a.count("sample", sample), dtype, save
        if dtype is not None:
            a.float_type("dtype", dtype)
        self._most = a.whole_number("most_findings", most_findings, 1)
        follows, self._maps = a.flag("backward", backward), a.flag("maps", maps)
        self._seams = Seams(model, self._hear, follows, _modules(model, modules))
        super().__init__(model, Intended(model) if a.flag("config", config) else None, follows)
        self._returning: list[tuple[Watched, Returned]] = []
        self._begun = 0.0
        self._hooks: list[a.Hook] = []

    def __enter__(self) -> Watch:
        self._seams.open()
        whole = importlib.import_module("torch").nn.MultiheadAttention  # whose fast path hooks would end
        for name, module in self._looks():
            if isinstance(module, whole):
                self._ran.add(name)  # its fast path, in torch.nn.TransformerEncoderLayer, runs without a call
            else:
                self._hooks.append(module.register_forward_pre_hook(lambda *_, name=name: self._ran.add(name)))
        if self._intended is not None:
            self._intended.open()
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun
        if self._intended is not None:
            self._intended.close()
            self._late()
        self._seams.close()
        while self._hooks:
            self._hooks.pop().remove()
        for row, returned in self._returning:
            if returned.rounds == 0 and not returned.again:
                some = ", ".join(f"d{name[0]}" for name in returned.wanted if name not in returned.found)
                self._uncompared(row, f"no gradient came back{f' ({some})' if returned.output is not None else ''}")
            returned.close()
        self._returning.clear()

    # ---------------------------------------------------------------- a call

    def _hear(self, layer: str, ask: Callable[[], Asked], output: a.Torch, backward: Optional[BackwardRun]) -> None:
        """Checks a call after it has run."""
        row = self.layers.setdefault(layer, Watched(layer))
        row.calls += 1
        with self._checking(row):
            asked = ask()
            right = self._check(row, asked, output)
            if backward is not None and backward.returned.reason:
                self._uncompared(row, backward.returned.reason)
            elif backward is not None and backward.returned.is_followed and right:
                self._returning.append((row, backward.returned))
                backward.returned.check = functools.partial(self._come_back, row, row.calls, asked, backward)

    def _uncompared(self, row: Watched, reason: str) -> None:
        if reason not in row.uncompared:
            row.uncompared.append(reason)

    @contextmanager
    def _checking(self, row: Watched) -> Iterator[None]:
        """What goes wrong inside is the call's, never the model's."""
        begun = time.perf_counter()
        try:
            yield
        except (NotChecked, Error, TypeError, ValueError, NotImplementedError, RuntimeError, MemoryError) as reason:
            self._uncompared(row, str(reason) or type(reason).__name__)
        self.checking += time.perf_counter() - begun

    def _come_back(self, row: Watched, call: int, asked: Asked, backward: BackwardRun, do: a.Torch,
                   found: Mapping[str, a.Torch]) -> None:
        """Checks the gradients of a call when they have come back."""
        with self._checking(row), importlib.import_module("torch").no_grad():
            if backward.returned.others:
                raise NotChecked("gradients of weights or of lse")
            checked = backward_check.check(asked, host(backward.heads(do)), {
                name: host(backward.inputs(x)) for name, x in found.items()}, row.backward, self._dtype)
            row._add_backward(checked)
            if checked.ratio > 1 and len(self.findings) < self._most:
                self.findings.append(Finding(row.layer, call, "backward", checked.sentence, checked.names,
                                             (checked.clue,) if checked.clue else ()))

    def _check(self, row: Watched, asked: Asked, output: a.Torch) -> bool:
        """Whether the output is right."""
        rows = j.rows_of(asked, self._sample, len(self.layers) * 1000 + row.calls)
        checked = j.check(asked, output, rows, self._dtype, self._maps and not row.maps)
        row._add(asked, checked)
        if checked is not None and not checked.passed and len(self.findings) < self._most:
            self._wrong(row, asked, output, rows, checked)
        if self._intended is not None:
            found = self._intended.compare(row.layer, asked, output)
            self._late()
            row.described, row.projected = self._intended.held(row.layer)
            row.rounded = row.layer in self._intended.rounded
            row.unchecked = self._intended.unchecked.get(row.layer, row.unchecked)
            for parted in found:
                self._parts(row, parted)
        return checked is None or checked.passed

    def _parts(self, row: Watched, parted: Parted) -> None:
        """Notes in what a call parts from what it should be, once."""
        known = [(found.layer, found.names, found.kind) for found in self.findings]
        if (row.layer, parted.names, parted.kind) not in known and len(self.findings) < self._most:
            self.findings.append(Finding(row.layer, row.calls, parted.kind, parted.sentence, parted.names,
                                         parted.clues))

    def _late(self) -> None:
        """Notes what was found after calls had been compared."""
        assert self._intended is not None
        for heard, parted in self._intended.late():
            self._parts(self.layers[heard], parted)
        for name, row in self.layers.items():
            row.merged = self._intended.left(name)

    def _wrong(self, row: Watched, asked: Asked, output: a.Torch, rows: a.Wholes, checked: Checked) -> None:
        """Says what a wrong output is instead."""
        sentence, clues, names = j.why(asked, output, rows, self._dtype)
        clues = (sentence, *clues)
        if self._save is not None and self.saved is None:
            clues += (self._saved(os.fsdecode(self._save), asked, output),)
        self.findings.append(Finding(row.layer, row.calls, "output", f"the output is {checked.sentence}", names, clues))

    def _saved(self, path: str, asked: Asked, output: a.Torch) -> str:
        """Saves the first bad call, and says where."""
        if os.path.isdir(path):
            path = os.path.join(path, "watched.safetensors")
        try:
            j.save(path, asked, output, self._dtype)
        except (Error, OSError, TypeError, ValueError) as reason:
            return f"case not saved: {reason}"
        self.saved = str(path)
        return f"case saved: mha check {path}; mha diagnose {path}"


def _modules(model: a.Module, modules: object) -> dict[str, Said]:
    """Modules by name, with what is said of each."""
    if isinstance(modules, str) or not isinstance(modules, (Mapping, list, tuple)):
        raise TypeError(f"modules: expected names of modules, or a dict from names, found {type(modules).__name__}")
    found = dict(modules) if isinstance(modules, Mapping) else dict.fromkeys(modules)
    known = {name for name, _ in model.named_modules()}
    for name, said in found.items():
        if name not in known:
            raise ValueError(f"modules: expected names of model.named_modules(), found {name!r}")
        if said is not None and not callable(said) and not isinstance(said, Mapping):
            raise TypeError(f"modules[{name!r}]: expected a dict of arguments, a function or None, found "
                            f"{type(said).__name__}")
    return found


def watch(model: a.Module, *, sample: Optional[int] = None, dtype: Optional[a.Type] = None,
          save: Optional[a.Path] = None, most_findings: int = 16, config: bool = True, backward: bool = False,
          modules: Named = (), maps: bool = False) -> Watch:
    """Check every attention call of a model while it runs, on its actual inputs: an upstream error is not blamed on it.

    The model computes the same bits as without. mha watches one model at a time, in the thread that opens the watch.

    Parameters
    ----------
    model : torch.nn.Module
        On the CPU, in eval mode or without dropout. mha intercepts transformers' attention interface with any
        attn_implementation, torch.nn.functional.scaled_dot_product_attention, FlexAttention without score_mod,
        flash_attn_func, and torch.nn.MultiheadAttention, which it checks as a whole layer. w.unheard lists modules that
        compute attention themselves; `modules` names them.
    sample : int, default None
        Query rows of each batch row of a call to check; None: all, or 32 of a call of more than a million scores.
        Errors confined to other rows are not detected.
    dtype : str or dtype, default None
        Type of the arithmetic; None: that of the output.
    save : path_like, default None
        File or folder for the first bad call, a case for mha check and mha diagnose.
    most_findings : int, default 16
        Stop recording after this many findings.
    config : bool, default True
        Compare calls of a model of transformers with its configuration: heads, visible keys, scale, softcap, sinks;
        queries, keys and values of some tokens with the layer's input, weights and rotation; earlier rows of a cache
        with what they were. w.undescribed has the reason for no comparison, w.unchecked the layers that mha could not
        compare.
    backward : bool, default False
        Also check the gradients of q, k and v, each element by its own error bound, and name bugs (mha.testing.BUGS).
        Run loss.backward() inside the watch. Gradients of all parameters keep their bits. mha checks no backward of a
        call with a wrong output. Of torch.nn.MultiheadAttention it checks the gradients of the inputs in float32 and
        float64. Of more than a million scores it checks some key/value heads, half of them with unusual norms; of a
        layer some batch rows; of heads of more than four million scores dq of some queries (Watched.in_part).
    modules : sequence of str, or dict, default ()
        Modules that are attention calls themselves: query, key and value in, (B, h, T, d) each, the output out, first.
        A dict has further arguments of scaled_dot_product_attention for each, {"core": {"is_causal": True}}, or a
        function that makes all of them from the module's own, {"core": lambda x: {"query": x.q, "key": x.k, "value":
        x.v}}.
    maps : bool, default False
        The page also shows the right weights of the checked rows of batch row 0 in the first call, at most 64 x 64
        cells each.

    Returns
    -------
    mha.Watch
        A context manager. True if mha heard calls, checked all layers and found nothing wrong.

    Raises
    ------
    TypeError, ValueError
        An argument has the wrong type or value.
    RuntimeError
        On entry: another model is being watched.
    ImportError
        On entry: PyTorch is older than 2.0.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    >>> x = torch.randn(2, 5, 16)
    >>> with mha.watch(model) as w:
    ...     y = model(x)
    >>> w.passed, list(w.layers)
    (True, ['layers.0.self_attn'])
    >>> page = w.to_html()
    """
    return Watch(model, sample=sample, dtype=dtype, save=save, most_findings=most_findings, config=config,
                 backward=backward, modules=modules, maps=maps)
