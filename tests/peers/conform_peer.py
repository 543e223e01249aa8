"""Runs the conformance suite on other libraries and writes bench/CONFORM.md.

    PYTHONPATH=build/python MHA_LIBRARY=build/libmha.so python3 tests/peers/conform_peer.py
        [--level L] [--minutes M] [LIBRARY ...]

Each library runs the test cases that its features allow, in float32, and the invariances. A failure must occur in each
of three calls. After M minutes no further test case begins: lower levels come first, and the row says how many ran.
The rows of a library replace its old ones in the page; those of a library that is not installed stay.
"""
import argparse
import importlib
import importlib.metadata
import sys
import time
import warnings

import numpy as np

from mha import testing
from mha.conformance.conform import Examination

warnings.simplefilter("ignore")
PAGE = "bench/CONFORM.md"
LENGTHS = (1, 17, 64, 97, 130)


def torch_sdpa(backend):
    def kernel(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        if is_causal and attn_mask is not None:
            raise NotImplementedError("a mask with is_causal")
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal,
                                                                    scale=scale, enable_gqa=enable_gqa)
    return kernel


def module(q, k, v, attn_mask=None):
    """nn.MultiheadAttention with projections that change nothing."""
    import torch
    B, h, T, d = q.shape
    rows = [x.transpose(1, 2).reshape(B, -1, h * d) for x in (q, k, v)]
    attention = torch.nn.MultiheadAttention(h * d, h, bias=False, batch_first=True).eval()
    attention.in_proj_weight.data = torch.eye(h * d).repeat(3, 1)
    attention.out_proj.weight.data = torch.eye(h * d)
    if attn_mask is not None:
        attn_mask = attn_mask.expand(B, h, T, -1).reshape(B * h, T, -1)
    return attention(*rows, attn_mask=attn_mask, need_weights=False)[0].detach().reshape(B, T, h, d).transpose(1, 2)


def onnx_model(op, domain, names, arrays, attributes):
    from onnx import TensorProto, helper
    given = {name: x for name, x in zip(names, arrays) if x is not None}
    node = helper.make_node(op, [name if name in given else "" for name in names], ["Y"], domain=domain, **attributes)
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
              for name, x in given.items()]
    graph = helper.make_graph([node], "one", values, [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 23)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), given


def run_runtime(*what):
    import onnxruntime
    model, given = onnx_model(*what)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


def run_reference(*what):
    from onnx.reference import ReferenceEvaluator
    model, given = onnx_model(*what)
    return ReferenceEvaluator(model).run(None, given)[0]


def onnx_attention(run):
    def kernel(q, k, v, attn_mask=None, is_causal=False, scale=None, softcap=None, enable_gqa=False):
        more = {name: x for name, x in (("scale", scale), ("softcap", softcap)) if x is not None}
        if is_causal:
            more["is_causal"] = 1
        return run("Attention", "", ["Q", "K", "V", "M"], [q, k, v, attn_mask], more)
    return kernel


def onnx_rows(op):
    def kernel(q, k, v, is_causal=False, scale=None, softcap=None, window=None, enable_gqa=False):
        B, h, T, _ = q.shape
        more = {name: x for name, x in (("scale", scale), ("softcap", softcap)) if x is not None}
        rows = [x.swapaxes(1, 2).reshape(B, x.shape[2], -1) for x in (q, k, v)]
        if op == "MultiHeadAttention":
            if window is not None or softcap is not None:
                raise NotImplementedError("window, softcap")
            y = run_runtime(op, "com.microsoft", ["Q", "K", "V"], rows,
                            {"num_heads": h, "unidirectional": int(is_causal), **more})
        else:
            if not is_causal or T != k.shape[2]:
                raise NotImplementedError("what is not causal")
            if window is not None:
                more["local_window_size"] = window[0] + 1
            last, total = np.full(B, T - 1, "i4"), np.asarray(T, "i4")
            y = run_runtime(op, "com.microsoft", ["Q", "K", "V", "pk", "pv", "last", "total"],
                            [*rows, None, None, last, total],
                            {"num_heads": h, "kv_num_heads": k.shape[1], **more})
        return y.reshape(B, T, h, -1).swapaxes(1, 2)
    return kernel


def transformers_eager(q, k, v, attn_mask=None, scale=None, enable_gqa=False):
    import torch
    from transformers.models.llama.modeling_llama import eager_attention_forward
    core = torch.nn.Module()
    core.num_key_value_groups, core.training = q.shape[1] // k.shape[1], False
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.finfo(q.dtype).min)
    return eager_attention_forward(core, q, k, v, attn_mask, scaling=q.shape[3]**-0.5 if scale is None else scale)[0] \
        .transpose(1, 2)


def flex_attention(compiled):
    """A mask is its score_mod. Compiled: each call anew, since a limit of recompilations would end in eager mode."""
    def kernel(q, k, v, attn_mask=None, scale=None, enable_gqa=False):
        import torch
        from torch.nn.attention.flex_attention import flex_attention as flex
        mask = attn_mask
        if mask is not None:
            mask = mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])

        def score_mod(score, b, h, i, j):
            if mask.dtype == torch.bool:
                return torch.where(mask[b, h, i, j], score, -torch.inf)
            return score + mask[b, h, i, j]

        if compiled:
            torch._dynamo.reset()
            flex = torch.compile(flex, fullgraph=True, dynamic=False)
        return flex(q, k, v, None if mask is None else score_mod, scale=scale, enable_gqa=enable_gqa)
    return kernel


def jax_attention(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    import jax
    kind = "bias" if attn_mask is not None and attn_mask.dtype != bool else "mask"
    rows = [x.swapaxes(1, 2) for x in (q, k, v)]
    return jax.nn.dot_product_attention(*rows, **{kind: attn_mask}, is_causal=is_causal, scale=scale).swapaxes(1, 2)


def keras_attention(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Of the back end that KERAS_BACKEND names, TensorFlow where it names none."""
    import os
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras
    kind = "bias" if attn_mask is not None and attn_mask.dtype != bool else "mask"
    rows = [x.swapaxes(1, 2) for x in (q, k, v)]
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.dot_product_attention(
        *rows, **{kind: attn_mask}, is_causal=is_causal, scale=scale))).swapaxes(1, 2)


def openvino_attention(q, k, v, attn_mask=None, is_causal=False, scale=None):
    import openvino
    from openvino import opset13 as ops
    if is_causal and attn_mask is not None:
        raise NotImplementedError("a mask with causal, which its documentation says is ignored")
    inputs = [x for x in (q, k, v, attn_mask) if x is not None]
    nodes = [ops.parameter(list(x.shape), x.dtype) for x in inputs]
    how = {} if scale is None else {"scale": ops.constant(np.float32(scale))}
    mask = nodes[3] if attn_mask is not None else ops.constant(np.float32(0)) if how else None
    out = ops.scaled_dot_product_attention(*nodes[:3], mask, causal=is_causal, **how)
    compiled = openvino.compile_model(openvino.Model([out], nodes), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return compiled([np.ascontiguousarray(x) for x in inputs])[0]


def mlx_attention(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    import mlx.core as mx
    if is_causal and attn_mask is not None:
        raise NotImplementedError("a mask with is_causal")
    mask = "causal" if is_causal else None if attn_mask is None else mx.array(attn_mask)
    return np.array(mx.fast.scaled_dot_product_attention(
        *(mx.array(x) for x in (q, k, v)), scale=q.shape[3]**-0.5 if scale is None else scale, mask=mask))


def pallas_attention(q, k, v, is_causal=False, scale=None):
    """Its kernel for GPUs, in the interpreter, which has one scale for each compiled kernel."""
    from jax.experimental.pallas.ops.gpu import attention
    y = attention.mha(*(x.swapaxes(1, 2) for x in (q, k, v)), None, causal=is_causal, interpret=True,
                      sm_scale=q.shape[3]**-0.5 if scale is None else scale)
    return y.swapaxes(1, 2)


def tinygrad_attention(q, k, v, attn_mask=None, is_causal=False, enable_gqa=False):
    from tinygrad import Tensor
    if is_causal and attn_mask is not None:
        raise NotImplementedError("a mask with is_causal")
    rows = [Tensor(np.ascontiguousarray(x)) for x in (q, k, v)]
    mask = None if attn_mask is None else Tensor(np.ascontiguousarray(attn_mask))
    return rows[0].scaled_dot_product_attention(*rows[1:], attn_mask=mask, is_causal=is_causal,
                                                enable_gqa=enable_gqa).numpy()


PLAIN = "cross strides"
# By name: package, kernel, arrays, layout, what it has.
LIBRARIES = {
    "PyTorch SDPA, math": ("torch", torch_sdpa("MATH"), "torch", "BHTD",
                           "causal gqa value_width scale mask bool_mask backward " + PLAIN),
    "PyTorch SDPA, flash": ("torch", torch_sdpa("FLASH_ATTENTION"), "torch", "BHTD",
                            "causal gqa scale mask bool_mask backward " + PLAIN),
    "PyTorch nn.MultiheadAttention": ("torch", module, "torch", "BHTD", "mask bool_mask " + PLAIN),
    "ONNX Runtime, Attention": ("onnxruntime", onnx_attention(run_runtime), "numpy", "BHTD",
                                "causal gqa value_width scale mask bool_mask softcap cross"),
    "ONNX Runtime, MultiHeadAttention": ("onnxruntime", onnx_rows("MultiHeadAttention"), "numpy", "BHTD",
                                         "causal value_width scale cross"),
    "ONNX Runtime, GroupQueryAttention": ("onnxruntime", onnx_rows("GroupQueryAttention"), "numpy", "BHTD",
                                          "causal gqa scale softcap window"),
    "ONNX reference, Attention": ("onnx", onnx_attention(run_reference), "numpy", "BHTD",
                                  "causal gqa value_width scale mask bool_mask softcap cross"),
    "transformers, eager (Llama)": ("transformers", transformers_eager, "torch", "BHTD",
                                    "gqa value_width scale mask bool_mask backward " + PLAIN),
    "PyTorch FlexAttention, eager": ("torch", flex_attention(False), "torch", "BHTD",
                                     "gqa value_width scale mask bool_mask backward " + PLAIN),
    "PyTorch FlexAttention, compiled": ("torch", flex_attention(True), "torch", "BHTD",
                                        "gqa value_width scale mask bool_mask backward " + PLAIN),
    "JAX, dot_product_attention": ("jax", jax_attention, "jax", "BHTD",
                                   "causal gqa scale mask bool_mask cross backward"),
    "Keras, dot_product_attention": ("keras", keras_attention, "numpy", "BHTD",
                                     "causal gqa scale mask bool_mask cross"),
    "OpenVINO": ("openvino", openvino_attention, "numpy", "BHTD", "causal value_width scale mask bool_mask cross"),
    "Pallas, attention for GPUs, interpreted": ("jax", pallas_attention, "jax", "BHTD", "causal scale cross"),
    "tinygrad, CPU": ("tinygrad", tinygrad_attention, "numpy", "BHTD", "causal gqa value_width mask bool_mask cross"),
    "MLX, CPU": ("mlx", mlx_attention, "numpy", "BHTD", "causal gqa value_width scale mask bool_mask cross"),
}



def refusing(plain):
    """A kernel whose exceptions say that it cannot."""
    def kernel(*inputs, **said):
        try:
            return plain(*inputs, **said)
        except Exception as raised:
            raise NotImplementedError(str(raised)) from None
    return kernel


def results(kernel, layout, arrays, has, level, minutes):
    """A report of the test cases that were asked in time, lower levels first, how many there are, and which failures
    were found in each of three calls."""
    begun = time.monotonic()
    asked = Examination(kernel, layout, "float32", has, level, arrays)
    rows = sorted(asked.rows, key=lambda row: row.level)
    asked.rows = []
    report = asked.report()
    for row in rows:
        if time.monotonic() - begun > 60 * minutes:
            break
        report.results.append(asked.result(row))
    of = {row.name: row for row in rows}
    failed = [result for result in report.failed
              if all(asked.result(of[result.case]).outcome == "failed" for _ in range(2))]
    return report, len(rows), failed


def ask(name, level, minutes):
    """The report, how many test cases there are, its failures, and invariances."""
    _, plain, arrays, layout, has = LIBRARIES[name]
    kernel = refusing(plain)
    report, every, failed = results(kernel, layout, arrays, has, level, minutes)
    hides = report.conventions.get("mask") == "hides"

    def keeping(*inputs, attn_mask=None, **said):
        if attn_mask is not None:
            said["attn_mask"] = ~attn_mask if hides else attn_mask
        return kernel(*inputs, **said)

    found = testing.invariant(keeping, layout=layout, arrays=arrays, lengths=LENGTHS)
    return report, every, failed, found


def row(name, version, report, every, failed, found):
    words = {outcome: [x.name for x in found.found.values() if x.outcome == outcome]
             for outcome in ("bitwise", "violated")}
    conventions = ", ".join(f"{d} {choice}" for d, choice in report.conventions.items())
    counted = {backward: [sum(result.outcome == outcome and ("backward" in result.needs) == backward
                              for result in report.results) for outcome in ("passed", "refused")]
               for backward in (False, True)}
    wrong = sum("backward" in result.needs for result in failed)
    gradients = f"{counted[True][0]} of {sum(counted[True]) + wrong}"
    if "backward" not in LIBRARIES[name][4].split():
        gradients = "not asked"
    elif counted[True][0] + wrong == 0:
        gradients = "refused"
    level = report.level if len(report.results) == every else f"{report.level}, {len(report.results)} of {every}"
    invariant = "; violated: ".join(", ".join(words[x]) for x in ("bitwise", "violated") if words[x])
    return (f"| {name} | {version} | {level} | {counted[False][0]} | {len(failed) - wrong} | {counted[False][1]} | "
            f"{gradients} | {conventions} | {invariant} |")


def told(name, report, failed):
    """A row for each family with a failure."""
    rows = []
    for family in {result.family: 0 for result in failed}:
        those = [result for result in failed if result.family == family]
        count = sum(x.family == family for x in report.results)
        rows.append(f"| {name} | `{family}` ({those[0].regime}) | {len(those)} of {count} | {those[0].because} | "
                    f"{those[0].max_abs:.2g} | {those[0].atol:.2g} |")
    return rows


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


HEADER = ("| library | version | level | passed | failed | refused | backward | conventions | bitwise under |\n"
          "|---|---|---|---|---|---|---|---|---|\n")
FAILED = ("\n## Failures\n\n| library | test cases | failed | reason | off by | allowed |\n|---|---|---|---|---|---|\n")


def replaced(page, name, line, failures):
    """The page with new rows of a library."""
    head, _, rest = page.partition("<!-- results")
    parts = [[x for x in part.splitlines() if x.startswith("| ") and not x.startswith("| library")]
             for part in rest.partition(FAILED.split("|")[0])[::2]]
    parts = [[x for x in part if x.split(" | ")[0][2:] != name] + new for part, new in zip(parts, ([line], failures))]
    done, wrong = (sorted(part, key=lambda x: list(LIBRARIES).index(x.split(" | ")[0][2:])) for part in parts)
    return (head + "<!-- results: written by tests/peers/conform_peer.py -->\n\n" + HEADER + "\n".join(done) + "\n"
            + (FAILED + "\n".join(wrong) + "\n" if wrong else ""))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--level", default="full")
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY")
    said = parser.parse_args()
    for name in said.libraries or list(LIBRARIES):
        version = version_of(LIBRARIES[name][0])
        if version is None:
            print(f"{name}: {LIBRARIES[name][0]} is not installed", file=sys.stderr)
            continue
        begun = time.monotonic()
        report, every, failed, found = ask(name, said.level, said.minutes)
        line = row(name, version, report, every, failed, found)
        print(f"{time.monotonic() - begun:.0f} s {line}", flush=True)
        with open(PAGE, encoding="utf-8") as file:
            page = file.read()
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(replaced(page, name, line, told(name, report, failed)))


if __name__ == "__main__":
    main()
