"""mha.explain: a key that has no effect by its report has none in the layers."""
import ctypes
import json

import pytest

import mha
from mha.core.library import lib


def config_of(index):
    """The configuration of a preset."""
    text = ctypes.c_char_p()
    lib.mha_preset_at(index, ctypes.byref(text))
    return json.loads(text.value)


def values_of(explanation):
    """Names and values of each layer."""
    return {layer: {name: row.value for name, row in kind.values.items() if row.value not in (None, False)}
            for kind in explanation.kinds for layer in kind.layers}


def small(config):
    """Whether a model is made in milliseconds."""
    return not any("expert" in key for key in config)


PRESETS = [name for index, name in enumerate(mha.presets()) if small(config_of(index))]


@pytest.mark.parametrize("name", PRESETS)
def test_keys_without_effect_can_be_left_out(name):
    config = config_of(mha.presets().index(name))
    whole = mha.explain(config)
    tried = 0
    for key, row in whole.keys.items():
        outer, _, inner = key.partition(".")
        less = json.loads(json.dumps(config))
        if row.effect in ("values", "layers"):
            continue
        del (less[outer] if inner else less)[inner or outer]
        assert values_of(mha.explain(less)) == values_of(whole), key
        tried += 1
    assert tried or len(whole.keys) < 12


def test_a_value_follows_each_of_its_keys():
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
              "num_hidden_layers": 2, "rope_theta": 10000.0, "attention_bias": True}
    whole = mha.explain(config)
    other = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "rope_theta": 5.0,
             "attention_bias": False}
    for key, value in other.items():
        changed = mha.explain({**config, key: value}, against=config)
        assert {each.name for each in changed.differences} == set(whole.keys[key].values), key
        assert [each.name for each in changed.other_keys] == [key]
    assert whole.keys["num_hidden_layers"].effect == "layers"
    assert mha.explain({**config, "num_hidden_layers": 3}, against=config).differences[0].name == "attention_layers"


def test_what_is_wrong_is_named():
    with pytest.raises(TypeError, match="^source"):
        mha.explain(3)
    with pytest.raises(TypeError, match="^against: expected what JSON can hold"):
        mha.explain("gpt2", against={"model_type": b"x"})
    with pytest.raises(LookupError, match="preset"):
        mha.explain("no such model")
    with pytest.raises(FileNotFoundError):
        mha.explain("./none.json")
