"""ONNX Runtime as a contender of bench/peers.py: models written here, run through its C library by ctypes.

Needs libonnxruntime.so, which Python's package onnxruntime brings, and npm's onnxruntime-node (`npm install --prefix
build onnxruntime-node`), or its path in the environment variable ONNXRUNTIME. No header is needed: the C interface is a
table whose order never changes.
"""
import ctypes
import glob
import importlib.util
import os
import platform
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_void_p

import numpy as np

from work import Absent, time_calls

# Places in the table OrtApi (onnxruntime_c_api.h), and the arguments' types.
API = {
    "GetErrorMessage": (2, [c_void_p], c_char_p),
    "CreateEnv": (3, [c_int, c_char_p, c_void_p], c_void_p),
    "CreateSessionFromArray": (8, [c_void_p, c_char_p, c_size_t, c_void_p, c_void_p], c_void_p),
    "Run": (9, [c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p], c_void_p),
    "CreateSessionOptions": (10, [c_void_p], c_void_p),
    "SetIntraOpNumThreads": (24, [c_void_p, c_int], c_void_p),
    "CreateTensorWithDataAsOrtValue": (49, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_int, c_void_p],
                                       c_void_p),
    "CreateCpuMemoryInfo": (69, [c_int, c_int, c_void_p], c_void_p),
    "ReleaseSession": (95, [c_void_p], None),
    "ReleaseValue": (96, [c_void_p], None),
}
API_VERSION, WARNINGS_OFF, DEVICE_ALLOCATOR, DEFAULT_MEMORY = 17, 3, 0, 0
FLOAT, UINT8, INT32, INT64 = 1, 2, 6, 7  # ONNX element types
MICROSOFT = "com.microsoft"


# ---------------------------------------------------------------- ONNX files: protobuf, by hand

def varint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


class Graph:
    """Nodes, constants, inputs; model() is the file, with outputs of the names and shapes given."""

    def __init__(self):
        self.nodes, self.constants, self.feeds, self.count = b"", [], {}, 0
        self.shared = {}  # outputs that are written where an input lies

    def constant(self, array):
        name, kind = f"c{len(self.constants)}", {"u1": UINT8, "i4": INT32, "i8": INT64}.get(array.dtype.str[1:], FLOAT)
        dims = b"".join(field(1, n) for n in array.shape)
        self.constants.append(field(5, dims + field(2, kind) + field(8, name) + field(9, array.tobytes())))
        return name

    def feed(self, name, array):
        self.feeds[name] = np.ascontiguousarray(array, np.float32)
        return name

    def node(self, op, inputs, outputs=None, domain="", **attributes):
        self.count += 1
        outputs = outputs or [f"t{self.count}"]
        body = b"".join(field(1, n) for n in inputs) + b"".join(field(2, n) for n in outputs) + field(4, op)
        body += b"".join(field(5, field(1, k) + field(3, v) + field(20, 2)) for k, v in attributes.items())
        self.nodes += field(1, body + field(7, domain))
        return outputs[0]

    def model(self, outputs):
        def typed(name, shape):
            dims = b"".join(field(1, field(1, n)) for n in shape)
            return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, dims)))

        graph = self.nodes + field(2, "g") + b"".join(self.constants)
        graph += b"".join(field(11, typed(n, a.shape)) for n, a in self.feeds.items())
        graph += b"".join(field(12, typed(n, shape)) for n, shape in outputs.items())
        opsets = field(8, field(1, "") + field(2, 23)) + field(8, field(1, MICROSOFT) + field(2, 1))
        return field(1, 10) + opsets + field(7, graph)


# ---------------------------------------------------------------- the contender

def find_library():
    arch = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    inside = f"node_modules/onnxruntime-node/bin/napi-v*/linux/{arch}/libonnxruntime.so*"
    package = importlib.util.find_spec("onnxruntime")
    in_python = [os.path.join(p, "capi", "libonnxruntime.so*") for p in (
        package.submodule_search_locations if package else [])]
    above = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = [os.environ.get("ONNXRUNTIME", ""), *in_python] + [os.path.join(p, inside) for p in (
        os.path.join(above, "build"), above, "/usr/lib", "/usr/local/lib")]
    return next((f for p in places if p for f in sorted(glob.glob(p))), None)


class OnnxRuntime:
    """`kind`: mha (MultiHeadAttention), attn (the ONNX operator Attention), gqa (GroupQueryAttention: causal), mm
    (MatMul: the projections alone)."""

    def __init__(self, threads, kind):
        self.kind = kind
        path = find_library()
        if not path:
            raise Absent("no libonnxruntime.so: "
                         "pip install onnxruntime, or npm install --prefix build onnxruntime-node")
        lib = ctypes.CDLL(path)
        lib.OrtGetApiBase.restype = ctypes.POINTER(c_void_p * 2)
        get_api, get_version = lib.OrtGetApiBase().contents
        self.version = ctypes.CFUNCTYPE(c_char_p)(get_version)().decode()
        table = ctypes.cast(ctypes.CFUNCTYPE(c_void_p, ctypes.c_uint32)(get_api)(API_VERSION), ctypes.POINTER(c_void_p))
        self.api = {name: ctypes.CFUNCTYPE(result, *types)(table[at]) for name, (at, types, result) in API.items()}
        self.env, self.options, self.memory = c_void_p(), c_void_p(), c_void_p()
        self.check("CreateEnv", WARNINGS_OFF, b"peers", byref(self.env))
        self.check("CreateSessionOptions", byref(self.options))
        self.check("SetIntraOpNumThreads", self.options, threads)
        self.check("CreateCpuMemoryInfo", DEVICE_ALLOCATOR, DEFAULT_MEMORY, byref(self.memory))
        self.session, self.values, self.kept = None, [], []

    def check(self, name, *arguments):
        status = self.api[name](*arguments)
        if status:
            raise RuntimeError(self.api["GetErrorMessage"](status).decode())

    def attention(self, graph, w, q, k, v, past, bias, output):
        """The attention operator on q, k, v of (B, T, h*d_k), keys and values of `past` before them."""
        if self.kind == "mha":
            if w.h_kv != w.h:
                raise Absent("MultiHeadAttention has no grouped heads")
            inputs = [q, k, v, bias or "", "", "", *(past or [])] if past or bias else [q, k, v]
            outputs = [output, output + "_k", output + "_v"] if past else [output]
            return graph.node("MultiHeadAttention", inputs, outputs, MICROSOFT, num_heads=w.h,
                              unidirectional=int(w.causal))
        if self.kind == "attn":
            inputs = [q, k, v, "", *past] if past else [q, k, v]
            outputs = [output, output + "_k", output + "_v"] if past else [output]
            return graph.node("Attention", inputs, outputs, q_num_heads=w.h, kv_num_heads=w.h_kv,
                              is_causal=int(w.causal))
        if not (w.causal or w.decodes):
            raise Absent("GroupQueryAttention is always causal")
        lengths = graph.constant(np.full(w.B, w.T_k - 1, np.int32))
        total = graph.constant(np.array(w.T_k, np.int32))
        present = [output + "_k", output + "_v"]
        if past:  # one cache with room for the new row, so that the operator copies none
            graph.shared.update(zip(present, past))
        return graph.node("GroupQueryAttention", [q, k, v, *(past or ("", "")), lengths, total],
                          [output, *present], MICROSOFT, num_heads=w.h, kv_num_heads=w.h_kv)

    def core(self, graph, w):
        if not w.decodes:
            q, k, v = (graph.feed(n, w[n]) for n in ("query", "key", "value"))
            self.attention(graph, w, q, k, v, None, None, "output")
            return
        q, keys, values = w["query"], w.heads("key"), w.heads("value")
        if self.kind == "attn":  # takes (B, h, T, d_k) as it is
            feeds = [graph.feed("q", q.reshape(w.B, w.h, 1, w.d_k)), graph.feed("k", keys), graph.feed("v", values)]
            graph.node("Attention", feeds, ["heads"], is_causal=0)
            shape = graph.constant(np.array([w.B, 1, w.h * w.d_k]))
            graph.node("Reshape", ["heads", shape], ["output"])
        elif self.kind == "mha":
            feeds = [graph.feed("q", q), graph.feed("k", keys), graph.feed("v", values)]
            self.attention(graph, w, *feeds, None, None, "output")
        else:
            row = (w.B, 1, w.h_kv * w.d_k)
            feeds = [graph.feed("q", q), graph.feed("k", keys[:, :, -1].reshape(row)),
                     graph.feed("v", values[:, :, -1].reshape(row))]
            past = [graph.feed("past_k", keys), graph.feed("past_v", values)]
            self.attention(graph, w, *feeds, past, None, "output")

    def whole(self, graph, w):
        project = self.projector(graph, w)
        x = graph.feed("x", w["query"])
        context = graph.feed("context", w["key"]) if w.crosses else x
        fused = self.kind == "mha" and w.bias  # this operator adds the three biases itself
        q, k, v = (project(i, n, w.bias and not fused, "y" + n) for i, n in ((x, "Q"), (context, "K"), (context, "V")))
        bias = graph.constant(np.concatenate([w["b_" + n] for n in "QKV"])) if fused else None
        room = 0 if self.kind == "gqa" else 1  # the others make a copy with the new row
        past = [graph.feed(n, w[n][:, :, : w.T_k - room]) for n in ("cached_keys", "cached_values")] if (
            w.decodes) else None
        heads = self.attention(graph, w, q, k, v, past, bias, "heads")
        project(heads, "O", w.bias, "output")

    def projector(self, graph, w):
        def project(x, name, bias, to):
            y = graph.node("MatMul", [x, graph.constant(w["W_" + name])], [f"m{name}" if bias else to])
            return graph.node("Add", [y, graph.constant(w["b_" + name])], [to]) if bias else y

        return project

    def projections(self, graph, w):
        project, x = self.projector(graph, w), graph.feed("x", w["query"])
        context = graph.feed("context", w["key"]) if w.crosses else x
        for i, n in ((x, "Q"), (context, "K"), (context, "V"), (graph.feed("heads", w["heads"]), "O")):
            project(i, n, w.bias, "y" + n)

    def value(self, array):
        shape, value = (c_int64 * array.ndim)(*array.shape), c_void_p()
        self.check("CreateTensorWithDataAsOrtValue", self.memory, array.ctypes.data, array.nbytes, shape, array.ndim,
                   FLOAT, byref(value))
        self.values.append(value)
        return value

    def prepare(self, w):
        if (w.part == "proj") != (self.kind == "mm"):
            raise Absent("another operator does this part")
        if self.kind == "attn" or (self.kind == "mha" and w.causal):
            w.hold_scores()
        graph, rows = Graph(), {"output": (w.B, w.T_q, w.d_model if w.part == "layer" else w.h * w.d_k)}
        {"layer": self.whole, "core": self.core, "proj": self.projections}[w.part](graph, w)
        if w.part == "proj":
            keys = w.T_k if w.crosses else w.T_q
            rows = {"yQ": (w.B, w.T_q, w.h * w.d_k), "yK": (w.B, keys, w.h_kv * w.d_k),
                    "yV": (w.B, keys, w.h_kv * w.d_k),
                    "yO": (w.B, w.T_q, w.d_model)}
        self.open(graph, rows)

    def open(self, graph, rows):
        """Makes `call`, which runs the graph and writes its outputs, of the shapes `rows`, into `results`."""
        self.results = [np.zeros(shape, np.float32) for shape in rows.values()]
        present = {name: graph.feeds[feed].shape for name, feed in graph.shared.items()}
        model, session = graph.model({**rows, **present}), c_void_p()
        self.check("CreateSessionFromArray", self.env, model, len(model), self.options, byref(session))
        self.session = session
        n, m = len(graph.feeds), len(rows) + len(present)
        names = (c_char_p * n)(*(name.encode() for name in graph.feeds))
        given = {name: self.value(a).value for name, a in graph.feeds.items()}
        feeds = (c_void_p * n)(*given.values())
        outputs = (c_void_p * m)(*(self.value(a).value for a in self.results),
                                 *(given[feed] for feed in graph.shared.values()))
        wanted = (c_char_p * m)(*(name.encode() for name in (*rows, *present)))
        self.kept = graph.feeds
        self.call = lambda: self.check("Run", session, None, names, feeds, n, wanted, m, outputs)

    def turn(self):
        return time_calls(self.call)

    def output(self):
        return np.concatenate([a.reshape(-1) for a in self.results])

    def release(self):
        for value in self.values:
            self.api["ReleaseValue"](value)
        if self.session:
            self.api["ReleaseSession"](self.session)
        self.session, self.values, self.kept, self.call = None, [], [], None
