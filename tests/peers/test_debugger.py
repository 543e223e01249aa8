"""mha watch --compare on what transformers' own debugger writes."""
import contextlib
import io

import pytest
from mha.torch import comparison
from test_transformers import ids_of, model_of

torch = pytest.importorskip("torch")
debugging = pytest.importorskip("transformers.model_debugging_utils")


@pytest.mark.parametrize("use_repr", [True, False])
def test_dumps_of_the_debugger(tmp_path, use_repr):
    paths = []
    for name, scale in (("right", None), ("wrong", 1.0)):
        model = model_of("opt", "eager", hidden_size=32, ffn_dim=16, word_embed_proj_dim=32)
        if scale is not None:
            layer = model.model.decoder.layers[1].self_attn
            layer.scaling = scale
        folder = tmp_path / name
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()), debugging.model_addition_debugger_context(
                model, debug_path=str(folder), do_prune_layers=False, use_repr=use_repr):
            model(ids_of())
        paths.append(next(str(path) for path in folder.iterdir() if path.name.endswith("FULL_TENSORS.json")))
    found = comparison.compare(*paths, n_heads=4)
    assert found.first.layer == 1, found
    if not use_repr:
        assert found.first.name.endswith("layers.1.self_attn.out_proj (input)"), found
        assert found.checked[paths[0]].right and "scale-missing" in found.checked[paths[1]].names, found
