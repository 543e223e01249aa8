"""The lines of the module's README that lead from a model of transformers to a page, on a tiny BERT."""
import os
import pathlib
import re
import subprocess

import pytest
from conftest import ROOT


def test_from_transformers_to_a_page(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    text = pathlib.Path(ROOT, "src/python/README.md").read_text()
    code, command = re.search(r"## From transformers.*?```python\n(.*?)```\s+(mha show [^\n]*)", text, re.S).groups()
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the animal did not cross street because it was too . ##ed tir".split()
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    config = transformers.BertConfig(vocab_size=len(words), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=8, max_position_embeddings=32)
    transformers.BertModel(config).save_pretrained(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(code.replace("bert-base-uncased", str(tmp_path)), {})
    names = (tmp_path / "tokens.txt").read_text().splitlines()
    assert names[0] == "[CLS]" and names[1] == "the" and names[-1] == "[SEP]"
    program = os.path.join(os.path.dirname(os.environ["MHA_LIBRARY"]), "mha")
    run = subprocess.run([program, *command.split()[1:]], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    for said in ("layer.0: 2 heads, weights as recorded", "layer.1: 2 heads", "[CLS]", "animal"):
        assert said in run.stdout
    assert (tmp_path / "page.html").stat().st_size > 0
