"""Counting a model of the Hub from its config.json, and what one has in hand."""
import mha
import numpy as np

config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
          "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
          "rope_theta": 500000.0, "tie_word_embeddings": False}
model = mha.Model.from_config(config)
print(model)
attention, cache = model.group_totals("attention").parameters, model.costs(1, 1).cache_elements
print(f"attention: {attention:,}; a token's cache: {cache:,}")
print(model.heads([16, 32, 64]))

tied = np.zeros((1000, 64), np.float32)
print(mha.count({"embed.weight": tied, "lm_head.weight": tied, "position_ids": np.arange(512)}))
