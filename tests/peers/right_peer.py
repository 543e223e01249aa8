"""Right results of other libraries, which the checker must not refuse, and wrong kernels, which it must.

    PYTHONPATH=build/python:tests/python MHA_LIBRARY=build/libmha.so python3 tests/peers/right_peer.py [LIBRARY ...]

Right: PyTorch's scaled_dot_product_attention (math and flash), nn.MultiheadAttention and FlexAttention, JAX's
dot_product_attention, ONNX Runtime's Attention, MultiHeadAttention and GroupQueryAttention, the eager cores and whole
layers of transformers; in float32, bfloat16 and float16, small and large, with inputs 5 and 20 times as large. None
says where it rounds, but ONNX Runtime's Attention, which keeps scores in float16. Both
mha.check and what mha.testing.assert_attention_close decides by check each, and must agree. Printed for each library
and type: how many there are, and the largest part of what is allowed that one of them needs.

Wrong: the kernels of tests/python/kernels.py in float32, with T of 16, 64, 256 and 1024 tokens. Those of `UNSEEN`
(test_tolerance.py) may pass from so many tokens on, as it says there.

Right as well, alone with the argument `split`: kernels that take keys in parts or exponentials of 2.

Exit code 1 when a right result is refused, a wrong one passes, or a library that is installed gave too few.
"""
import importlib
import json
import os
import pathlib
import sys
import tempfile
import zlib

os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np
import torch

import kernels
import mha
from layers_drawn import MODELS, inputs_of, settings
from mha import testing
from test_tolerance import SIZES, UNSEEN, Faces, drawn

TYPES = ("float32", "bfloat16", "float16")
SHAPES = ((1, 2, 5, 9, 8), (2, 4, 16, 16, 16), (1, 2, 64, 64, 64), (1, 3, 33, 130, 80), (1, 1, 256, 256, 64),
          (1, 1, 128, 512, 128))  # B, heads, T, S, d
HOT = (5, 20)  # times the usual query
SEED, INF = int(os.environ.get("PEER_SEED", 0)), float("inf")
torch.set_num_threads(1)
torch.set_grad_enabled(False)


def tensors(shape, dtype, h_kv=None, hot=1):
    B, h, T, S, d = shape
    random = np.random.default_rng(zlib.crc32(repr((SEED, shape, h_kv, hot)).encode()))
    made = [torch.from_numpy(random.standard_normal(s)) for s in ((B, h, T, d), (B, h_kv or h, S, d),
                                                                  (B, h_kv or h, S, d))]
    made[0] *= hot
    return random, [x.to(getattr(torch, dtype)) for x in made]


# ---------------------------------------------------------------- PyTorch


def masks(random, shape, dtype):
    """What PyTorch calls a call's mask, and other settings."""
    B, h, T, S, _ = shape
    keeps = torch.from_numpy(random.random((B, 1, T, S)) < 0.7)
    keeps[..., 0] = True
    added = torch.from_numpy(random.standard_normal((1, h, T, S))).to(getattr(torch, dtype))
    return {"full": {}, "causal": {"is_causal": True}, "bool": {"attn_mask": keeps}, "additive": {"attn_mask": added},
            "hides": {"attn_mask": torch.where(keeps, added[:1, :1], torch.tensor(-INF).to(added))}}


def torch_sdpa():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        for dtype in TYPES:
            for shape in SHAPES:
                random, inputs = tensors(shape, dtype)
                for name, said in masks(random, shape, dtype).items():
                    with sdpa_kernel(backend):
                        yield f"{backend.name} {dtype} {shape} {name}", dtype, sdpa(*inputs, **said), inputs, said
            for hot in HOT:
                for shape in SHAPES[2:4]:
                    _, inputs = tensors(shape, dtype, hot=hot)
                    with sdpa_kernel(backend):
                        yield f"{backend.name} {dtype} {shape} x{hot}", dtype, sdpa(*inputs), inputs, {}
            _, inputs = tensors(SHAPES[1], dtype, h_kv=2)
            with sdpa_kernel(backend):
                y = sdpa(*inputs, enable_gqa=True)
            yield f"{backend.name} {dtype} groups", dtype, y, inputs, {"enable_gqa": True}


def torch_module():
    for dtype in TYPES:
        for E, heads, T in ((16, 2, 7), (64, 4, 33), (256, 4, 64)):
            torch.manual_seed(E)
            module = torch.nn.MultiheadAttention(E, heads, batch_first=True).to(getattr(torch, dtype)).eval()
            x = torch.randn(2, T, E).to(getattr(torch, dtype))
            y = module(x, x, x, need_weights=False)[0]
            yield f"{dtype} {E}", dtype, y, (x, None, None), {"layer": mha.MultiHeadAttention.from_torch(module)}


def flex():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    for dtype in TYPES:
        for shape in SHAPES[1:5]:
            _, inputs = tensors(shape, dtype)
            _, _, T, S, _ = shape
            blocks = {"full": (None, {}), "causal": (lambda b, h, q, k: q >= k, {"is_causal": True}),
                      "window": (lambda b, h, q, k: (q - k <= 5) & (k - q <= 2), {"window": (5, 2), "offset": 0})}
            for name, (rule, said) in blocks.items():
                mask = None if rule is None else create_block_mask(rule, None, None, T, S, device="cpu")
                y = flex_attention(*inputs, block_mask=mask)
                yield f"{dtype} {shape} {name}", dtype, y, inputs, said
            y = flex_attention(*inputs, score_mod=lambda s, b, h, q, k: 2 * torch.tanh(s / 2))
            yield f"{dtype} {shape} softcap", dtype, y, inputs, {"softcap": 2.0}


# ---------------------------------------------------------------- JAX


def jax():
    import jax
    import ml_dtypes  # noqa: F401 (numpy's bfloat16)
    attention, jnp = jax.nn.dot_product_attention, jax.numpy
    for dtype in TYPES:
        for shape in SHAPES[:4] + SHAPES[5:]:
            random, inputs = tensors(shape, dtype)
            B, h, T, S, _ = shape
            q, k, v = (jnp.asarray(x.float().numpy().swapaxes(1, 2)).astype(dtype) for x in inputs)
            keeps = random.random((B, 1, T, S)) < 0.7
            keeps[..., 0] = True
            added = random.standard_normal((1, h, T, S)).astype("f4")
            lengths = np.full(B, S - 1, "i4")
            same = T == S
            kinds = {"full": ({}, {}), "causal": ({"is_causal": True}, {"causal": True, "offset": "top-left"}),
                     "mask": ({"mask": keeps}, {"mask": keeps, "mask_kind": "keeps"}),
                     "bias": ({"bias": jnp.asarray(added)}, {"mask": added}),
                     "scale": ({"scale": 0.3}, {"scale": 0.3}),
                     "lengths": ({"key_value_seq_lengths": lengths}, {"lengths": lengths})}
            if same:
                kinds["window"] = ({"local_window_size": (3, 1)}, {"window_size": (3, 1)})
            for name, (theirs, said) in kinds.items():
                y = attention(q, k, v, **theirs)
                yield f"{dtype} {shape} {name}", dtype, y, (q, k, v), {"layout": "BTHD", **said}


# ---------------------------------------------------------------- ONNX Runtime


def onnx_run(op, domain, opset, names, arrays, attributes, type_of):
    """The first output of a model of one node; names without an array are left out."""
    import onnx
    import onnxruntime
    from onnx import helper
    given = {name: x for name, x in zip(names, arrays) if x is not None}
    node = helper.make_node(op, [name if name in given else "" for name in names], ["Y"], domain=domain, **attributes)
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
              for name, x in given.items()]
    graph = helper.make_graph([node], "one", values, [helper.make_tensor_value_info("Y", type_of, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]
                              + ([helper.make_opsetid(domain, 1)] if domain else []), ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


def onnx():
    from onnx import TensorProto
    for dtype, code in (("float32", TensorProto.FLOAT), ("float16", TensorProto.FLOAT16)):
        for shape in SHAPES[:4]:
            B, h, T, S, d = shape
            random, inputs = tensors(shape, dtype)
            q, k, v = (x.numpy() for x in inputs)
            keeps = random.random((B, 1, T, S)) < 0.7
            keeps[..., 0] = True
            added = random.standard_normal((1, h, T, S)).astype(dtype)
            names = ["Q", "K", "V", "M"]
            run = lambda *mask, **more: onnx_run("Attention", "", 23, names, [q, k, v, *mask], more, code)
            for name, y, said in (("full", run(), {}), ("causal", run(is_causal=1), {"is_causal": True}),
                                  ("bool", run(keeps), {"attn_mask": keeps}),
                                  ("additive", run(added), {"attn_mask": added}),
                                  ("softcap", run(softcap=2.0), {"softcap": 2.0}),
                                  ("scale", run(scale=0.3), {"scale": 0.3})):
                if dtype == "float16":  # scores are made and stored in it
                    said["precision"] = {"scores": dtype}
                yield f"Attention {dtype} {shape} {name}", dtype, y, (q, k, v), said
            rows = [x.swapaxes(1, 2).reshape(B, -1, h * d) for x in (q, k, v)]
            for name, more, said in (("full", {}, {}), ("causal", {"unidirectional": 1}, {"is_causal": True}),
                                     ("scale", {"scale": 0.3}, {"scale": 0.3})):
                if name == "causal" and T != S:
                    continue
                y = onnx_run("MultiHeadAttention", "com.microsoft", 17, ["Q", "K", "V"], rows, {"num_heads": h, **more},
                             code)
                yield (f"MultiHeadAttention {dtype} {shape} {name}", dtype, y.reshape(B, T, h, d).swapaxes(1, 2),
                       (q, k, v), said)
        for T, d in ((16, 16), (64, 64), (130, 80)):
            for hot in (1, *HOT):
                _, inputs = tensors((1, 4, T, T, d), dtype, h_kv=2, hot=hot)
                q, k, v = (x.numpy() for x in inputs)
                rows = [x.swapaxes(1, 2).reshape(1, T, -1) for x in (q, k, v)]
                last, total = np.full(1, T - 1, "i4"), np.asarray(T, "i4")
                for name, more, said in (("causal", {}, {}), ("window", {"local_window_size": 5}, {"window": (4, 0)}),
                                         ("softcap", {"softcap": 2.0}, {"softcap": 2.0})):
                    y = onnx_run("GroupQueryAttention", "com.microsoft", 17,
                                 ["Q", "K", "V", "past_k", "past_v", "last", "total"],
                                 [*rows, None, None, last, total], {"num_heads": 4, "kv_num_heads": 2, **more}, code)
                    yield (f"GroupQueryAttention {dtype} {T} x{hot} {name}", dtype,
                           y.reshape(1, T, 4, d).swapaxes(1, 2), (q, k, v),
                           {"is_causal": True, "enable_gqa": True, **said})


# ---------------------------------------------------------------- transformers

CORES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi", "olmo2", "cohere", "glm", "nemotron",
         "granite", "starcoder2", "deepseek_v3", "smollm3", "exaone4", "gpt_oss")


def cores():
    for name in CORES:
        core = importlib.import_module(f"transformers.models.{name}.modeling_{name}").eager_attention_forward
        for dtype in TYPES:
            for shape in (SHAPES[1], SHAPES[2]):
                random, inputs = tensors(shape, dtype, h_kv=shape[1] // 2)
                _, h, T, S, d = shape
                mask = torch.triu(torch.full((T, S), torch.finfo(inputs[0].dtype).min), 1).to(inputs[0])
                module = torch.nn.Module()
                module.num_key_value_groups, module.training = 2, False
                said, more = {"is_causal": True, "enable_gqa": True}, {}
                if name == "gpt_oss":
                    module.sinks = torch.from_numpy(random.standard_normal(h)).to(inputs[0])
                    said["sinks"] = module.sinks.double().numpy()
                if name == "gemma2":
                    said["softcap"] = more["softcap"] = 3.0
                y = core(module, *inputs, mask[None, None], scaling=d**-0.5, **more)[0].transpose(1, 2)
                yield f"{name} {dtype} {shape}", dtype, y, inputs, said


LAYERS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "olmo2", "cohere", "glm", "granite", "starcoder2",
          "gpt_oss", "deepseek_v2", "deepseek_v3", "minicpm3", "youtu")
LARGER = {"hidden_size": 64, "intermediate_size": 16}


def layers():
    """Each attention layer of tiny models, by the input and the output of its module."""
    import transformers
    from safetensors.torch import save_file
    for name in LAYERS:
        model_type, more = MODELS[name]
        for dtype in TYPES:
            torch.manual_seed(5)
            of = getattr(torch, dtype)
            wide = {} if "kv_lora_rank" in more else {"head_dim": 16}
            config = transformers.AutoConfig.for_model(model_type, **settings({**more, **LARGER, **wide}))
            config._attn_implementation = config._experts_implementation = "eager"
            model = transformers.AutoModel.from_config(config).to(of).eval()
            for parameter in model.parameters():
                parameter.data = torch.from_numpy(np.random.default_rng(parameter.numel()).normal(
                    0, 0.2, parameter.shape)).to(of)
            seen = {}
            for path, module in model.named_modules():
                if path.endswith("self_attn"):
                    module.register_forward_hook(
                        lambda _, args, kwargs, result, path=path: seen.update(
                            {path: (kwargs.get("hidden_states", args[0] if args else None), result[0])}),
                        with_kwargs=True)
            given, padding = inputs_of(model, config)
            model(**given)
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                config.architectures = [type(model).__name__]
                (folder / "config.json").write_text(json.dumps(config.to_dict()))
                save_file({n: x.contiguous().float() for n, x in model.state_dict().items()},
                          folder / "model.safetensors")
                for path, (x, y) in seen.items():
                    layer = mha.MultiHeadAttention.from_file(folder / "model.safetensors", layer=path, dtype="float32",
                                                             config=folder / "config.json", length=x.shape[1])
                    hidden = given["attention_mask"].numpy() == 0
                    yield f"{name} {dtype} {path}", dtype, y, (x, None, None), {
                        "layer": layer, "key_padding": hidden, "key_padding_kind": "hides"}


# ---------------------------------------------------------------- both lists


LIBRARIES = {"torch": (torch_sdpa, 180), "module": (torch_module, 9), "flex": (flex, 48), "jax": (jax, 90),
             "onnx": (onnx, 80), "cores": (cores, 100), "layers": (layers, 40)}


def part_needed(y, inputs, said, dtype):
    """How much of the tolerance a result needs: at most 1 means that it passes. Both faces are asked."""
    said = dict(said)
    layer, layout, precision = (said.pop(name, None) for name in ("layer", "layout", "precision"))
    verdict = mha.check(y, *inputs, layer=layer, layout=layout, dtype=dtype, precision=precision, **said)
    if verdict.outcome == "skipped":
        raise SystemExit(f"not checked: {verdict.reason}")
    meant = testing.Meant(*inputs, layer, layout, said)
    recorded = meant.recorded(y, None)
    found = meant.allowed(testing.Computed(dtype, precision, recorded), recorded)["output"]
    exact = mha.core.arrays.floats("exact", meant.exact())
    limits = testing.Limits(found.rtol, found.atol, found)
    apart = testing.Apart(mha.core.arrays.floats("y", y, mha.core.arrays.RESULTS), exact, limits)
    stage, = verdict.stages
    if (found.rtol, found.atol) != (stage.rtol, stage.atol) or verdict.passed != (apart.mismatches == 0):
        raise SystemExit("mha.check and the assertion differ")
    return apart.found.tolerance_factor


def right(names):
    """Counts by library and type; what was refused, or too few."""
    table, wrong, total = {}, [], 0
    for name in names:
        results, least = LIBRARIES[name]
        count = 0
        try:
            for what, dtype, y, inputs, said in results():
                part = part_needed(y, inputs, said, dtype)
                n, most = table.get((name, dtype), (0, 0.0))
                table[name, dtype] = n + 1, max(most, part)
                count += 1
                if not part <= 1:
                    wrong.append(f"refused: {name} {what}, {part:.3g} times what is allowed")
        except ImportError as reason:
            print(f"skipped: {name}: {reason}")
            continue
        if count < least:
            wrong.append(f"{name}: {count} results, expected {least} or more")
        total += count
    print("library  type      results  largest part of what is allowed")
    for (name, dtype), (n, most) in table.items():
        print(f"{name:8} {dtype:9} {n:7}  {most:.3f}")
    print(f"{total} right results, {sum(w.startswith('refused') for w in wrong)} refused")
    return wrong


def split():
    """Kernels that take keys in parts or exponentials of 2, by the conformance suite at level full."""
    wrong = []
    has = "causal cross gqa value_width scale softcap window offset mask bool_mask lengths sinks lse"
    with np.errstate(all="ignore"):
        for name, kernel in kernels.SPLIT.items():
            report = mha.conform(kernel, has=has, level="full")
            print(f"split: {name}: {len(report.results)} results, {len(report.failed)} refused")
            wrong += [f"refused: {name}: {result.case}: {result.reason}" for result in report.failed]
    return wrong


def planted():
    """Wrong kernels that pass where they must not."""
    wrong = []
    for T, d in SIZES:
        faces = Faces(*drawn(T, d, h=1 if T > 256 else 2))
        passed = [name for name, kernel in kernels.WRONG.items() if faces.accept(kernel(*faces.inputs))]
        found, = faces.limits.values()
        print(f"T {T}, d {d}: {len(kernels.WRONG)} wrong kernels, allowed {found.atol:.2e}, passed: {passed or 'none'}")
        wrong += [f"passed: {name} at T {T}" for name in passed if T < UNSEEN.get(name, INF)]
    return wrong


if __name__ == "__main__":
    testing.save_failures(tempfile.gettempdir())
    failed = split() if sys.argv[1:] == ["split"] else right(sys.argv[1:] or list(LIBRARIES))
    failed += [] if sys.argv[1:] else split() + planted()
    print("\n".join(failed))
    sys.exit(bool(failed))
