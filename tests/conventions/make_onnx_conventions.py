"""Records how ONNX read Attention before two errata of its specification, as case files next to this script.

    python3 -m pip install torch jax 'onnx<1.22' ml_dtypes
    python3 tests/conventions/make_onnx_conventions.py [directory]

The cases of ONNX in tests/vectors are recorded with onnx 1.23.2 (source_version), which follows both:
    https://github.com/onnx/onnx/pull/7867 (1.22): the softcap comes before the mask. It came after it.
    https://github.com/onnx/onnx/pull/8068 (1.23): with nonpad_kv_seqlen, the last query of a sequence is aligned with
        its last valid key. The first query was aligned with the first key.
A convention states the words of today, and has the numbers of before: tests/verify/test_vectors.c expects that they are
refused, and the name of the bug that they are. Of the second there is one batch row: before, lengths of several
could not be evaluated.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "vectors"))
from make_fused_vectors import Draw, mha_case, np, of_onnx, onnx  # noqa: E402


def conventions():
    draw = Draw("onnx_softcap_after_mask", d_v=6)
    mask = draw.numbers(4, 7)
    yield of_onnx(draw, 24, ("Y",), {"softcap": 2.0, "scale": 0.5625}, dict(softcap="2.0", scale="0.5625"), mask=mask)
    draw = Draw("onnx_lengths_causal_top_left", B=1, T=3)
    yield of_onnx(draw, 24, ("Y",), {"is_causal": 1}, dict(causal=1, position_offset=np.array([2])),
                  lengths=np.array([5]))


def main():
    assert tuple(map(int, onnx.__version__.split(".")[:2])) < (1, 22), "an onnx of before these errata is needed"
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for tensors, metadata in conventions():
        mha_case.write(directory / (metadata["name"] + ".safetensors"), tensors, metadata)


if __name__ == "__main__":
    main()
