"""Trains weights/lookup: one nn.MultiheadAttention whose heads learn to look things up.

At every position of a random token sequence six readouts must name: the previous token, the one
before that, the third before, the first of the sequence, the largest so far, and how often the
present token has been seen. Causal, 6 heads of 8 on width 48. Needs PyTorch (Debian: python3-torch).

    python3 weights/make_lookup.py [directory, default: weights/lookup]
"""
import json
import math
import pathlib
import sys

import torch
from torch import nn

import mha_case

TOKENS, LENGTH, WIDTH, HEADS, STEPS, SEED = 16, 12, 48, 6, 2500, 20240229


def embed(tokens):
    """One-hot token (16) beside sine and cosine of the position (32), float32."""
    position = torch.arange(tokens.shape[1], dtype=torch.float32)[:, None]
    frequency = torch.exp(torch.arange(16, dtype=torch.float32) * (-math.log(200.0) / 16))
    angle = position * frequency
    place = torch.cat([torch.sin(angle), torch.cos(angle)], dim=1).expand(tokens.shape[0], -1, -1)
    return torch.cat([nn.functional.one_hot(tokens, TOKENS).float() * 2, place], dim=2)


def targets(tokens):
    """Six classes per position; -1 where the question has no answer yet."""
    def before(n):
        return torch.cat([torch.full((tokens.shape[0], n), -1), tokens[:, :-n]], dim=1)
    same = (tokens[:, :, None] == tokens[:, None, :]).float().tril(-1).sum(dim=2).long().clamp(max=TOKENS - 1)
    return [before(1), before(2), before(3), tokens[:, :1].expand_as(tokens), tokens.cummax(dim=1).values, same]


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "lookup")
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    readouts = nn.ModuleList(nn.Linear(WIDTH, TOKENS) for _ in range(6))
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    optimiser = torch.optim.Adam([*attention.parameters(), *readouts.parameters()], lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for step in range(STEPS):
        tokens = torch.randint(TOKENS, (128, LENGTH))
        x = embed(tokens)
        out, _ = attention(x, x, x, attn_mask=hidden, need_weights=False)
        loss = sum(nn.functional.cross_entropy(readout(out).flatten(0, 1), target.flatten(), ignore_index=-1)
                   for readout, target in zip(readouts, targets(tokens)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    attention.eval()
    with torch.no_grad():
        tokens = torch.randint(TOKENS, (512, LENGTH))
        x = embed(tokens)
        out, weights = attention(x, x, x, attn_mask=hidden, average_attn_weights=False)
        for question, readout, target in zip(("1 back", "2 back", "3 back", "first", "largest", "seen"), readouts,
                                             targets(tokens)):
            known = target >= 0
            right = (readout(out).argmax(dim=2) == target)[known].float().mean()
            print(f"{question}: {100 * right:.1f} % right")
        last = weights[:, :, LENGTH - 1]  # what the last position looks at, per head
        for head in range(HEADS):
            print(f"head {head}: mean weight by distance", " ".join(f"{w:.2f}" for w in last[:, head].mean(0).flip(0)))

        x = x[:2].clone()
        out, weights = attention(x, x, x, attn_mask=hidden, average_attn_weights=False)
        exact = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
        exact.load_state_dict({name: value.double() for name, value in attention.state_dict().items()})
        exact.eval()
        x64 = x.double()
        out64, weights64 = exact(x64, x64, x64, attn_mask=hidden, average_attn_weights=False)

    made_by = {"made_by": "weights/make_lookup.py", "torch": torch.__version__, "seed": SEED}
    mha_case.write(directory / "model.safetensors",
                           {name: value.numpy() for name, value in attention.state_dict().items()},
                           {"format": "pt", **made_by})
    mha_case.write(directory / "recorded.safetensors",
                           {"tokens": tokens[:2].numpy(), "input": x.numpy(), "output": out.numpy(),
                            "weights": weights.numpy(), "output64": out64.numpy(), "weights64": weights64.numpy()},
                            made_by)
    config = {"model_type": "multihead_attention", "d_model": WIDTH, "num_attention_heads": HEADS, "bias": True,
              "causal": True}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
