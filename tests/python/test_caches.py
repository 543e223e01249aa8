"""Model.caches gives what mha params --seq and --log print."""
import json
import os
import subprocess

import pytest

import mha

LOG = """
llama_kv_cache: size = 3072.00 MiB (131072 cells, 12 layers, 1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB
llama_kv_cache: size =   18.00 MiB (   768 cells, 12 layers, 1/1 seqs), K (f16):    9.00 MiB, V (f16):    9.00 MiB
"""


def printed(*words):
    run = subprocess.run([os.environ["MHA_PROGRAM"], "params", "--json", *words], capture_output=True, check=True)
    return json.loads(run.stdout)["caches"]


def compare(caches, shown):
    assert [kind._asdict() for kind in caches.kinds] == shown["kinds"]
    for field in ("batch", "seq", "bytes", "bytes_in_pages", "bytes_llama_cpp"):
        assert getattr(caches, field) == shown[field]


@pytest.mark.parametrize("preset", ["gpt2", "gpt-oss-20b", "deepseek-v3.2", "qwen3-next-80b-a3b", "whisper-large-v3",
                                    "bert-base-uncased", "gemma-2-2b"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "i8", "q8_0"])
def test_caches_are_those_of_the_program(preset, dtype):
    shown = printed("--preset", preset, "--batch", "3", "--seq", "5000", "--cache-dtype", dtype)
    caches = mha.Model.from_preset(preset).caches(3, 5000, dtype=dtype)
    compare(caches, shown)
    assert sum(kind.bytes for kind in caches.kinds) == caches.bytes and caches.log is None


def test_a_log_is_split_as_by_the_program(tmp_path):
    (tmp_path / "a.log").write_text(LOG)
    shown = printed("--preset", "gpt-oss-20b", "--log", str(tmp_path / "a.log"))
    caches = mha.Model.from_preset("gpt-oss-20b").caches(1, log=tmp_path / "a.log")
    compare(caches, shown)
    assert caches.seq == 131072 and caches.log.engine == shown["log"]["engine"] == "llama.cpp"
    assert list(caches.log.parts.items()) == [(row["part"], row["bytes"]) for row in shown["log"]["parts"]]
    assert sum(caches.log.parts.values()) == caches.log.bytes == 3090 * 2**20


def test_metadata_of_a_gguf_are_enough():
    caches = mha.Model.from_gguf("tests/gguf/gemma2.gguf").caches(1, 50)
    compare(caches, printed("--weights", "tests/gguf/gemma2.gguf", "--seq", "50"))
    assert {kind.cache for kind in caches.kinds} == {"window", "all keys"}


def test_wrong_arguments_are_named(tmp_path):
    model = mha.Model.from_preset("gpt2")
    with pytest.raises(TypeError, match="^seq: "):
        model.caches(1)
    with pytest.raises(TypeError, match="^dtype: "):
        model.caches(1, 2, dtype="int64")
    with pytest.raises(FileNotFoundError):
        model.caches(1, log=tmp_path / "none.log")
    (tmp_path / "b.log").write_text("nothing")
    with pytest.raises(mha.Error, match="found neither in 1 lines"):
        model.caches(1, log=tmp_path / "b.log")
    with pytest.raises(mha.Error, match="GGUF"):
        mha.Model.from_gguf("weights/lookup/model.safetensors")
