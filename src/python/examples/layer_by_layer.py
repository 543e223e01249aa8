"""Checking an export layer by layer: stages that another program recorded, compared with its checkpoint.

The files are those of a small trained layer in weights/lookup: a state dict, and the inputs, outputs and attention
weights that PyTorch recorded. For a model of Hugging Face give its folder, its config.json, and the prefix of each
layer: mha.MultiHeadAttention.from_file("model/", "model.layers.3.self_attn", config="model/config.json").
"""
import os

import mha

folder = os.path.join(os.path.dirname(__file__), "..", "..", "..", "weights", "lookup")
recorded = mha.load(os.path.join(folder, "recorded.safetensors"))
layers = {"": mha.MultiHeadAttention.from_file(os.path.join(folder, "model.safetensors"), n_heads=6, causal=True)}
for prefix, layer in layers.items():
    print(layer)
    print(mha.check(recorded["output"], recorded["input"], layer=layer, stages={"weights": recorded["weights"]}))

# The same layer as a port computed it, which forgot to put the heads side by side again.
print(mha.check(os.path.join(folder, "wrong_port.safetensors")))
print(mha.diagnose(os.path.join(folder, "wrong_port.safetensors")).sentence)
