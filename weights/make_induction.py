"""Trains weights/induction: two layers of attention, nothing else, that learn to continue a text that repeats itself.

A sequence is a random word without a letter twice, written again and again, often behind a few other letters. From its
second time on, each next letter is known: a head of the first layer tells every letter which one stands before it, and
a head of the second layer looks for the place behind the same letter ("induction heads", Olsson et al. 2022). Where the
word begins and how long it is differ from sequence to sequence, so that no fixed distance helps. Needs PyTorch.

    python3 weights/make_induction.py [directory, default: weights/induction]
"""
import copy
import json
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

import mha_case

ALPHABET = "abcdefghijklmnopqrstuvwxyz."
TEXT = "dermatoglyphics.dermatoglyphics."  # 15 letters, none twice
LENGTH, WIDTH, HEADS, STEPS, BATCH, SEED = len(TEXT), 32, 4, 1500, 64, 20220924
SPREAD = 0.1  # price, in the end, of a bit of entropy of the weights, so that the heads choose what they look at


class Model(nn.Module):
    """Tokens and places embedded and added up; each layer adds what it found; the sum is read out."""

    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(len(ALPHABET), WIDTH)
        self.position_embedding = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(nn.ModuleDict({"self_attn": nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)})
                                    for _ in range(2))
        self.readout = nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, tokens, record=None):
        """The logits of the next token; in `record`, each layer's input, output and weights."""
        hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        x = self.token_embedding(tokens) + self.position_embedding.weight
        for i, layer in enumerate(self.layers):
            y, weights = layer["self_attn"](x, x, x, attn_mask=hidden, need_weights=record is not None,
                                            average_attn_weights=False)
            if record is not None:
                record.update({f"layers.{i}.input": x, f"layers.{i}.output": y, f"layers.{i}.weights": weights})
            x = x + y
        return self.readout(x)


def sequences(n):
    """(n, LENGTH) tokens; where the word begins, 0 to 12, behind other letters; and its length, 4 to 14."""
    letters = torch.rand(n, len(ALPHABET)).argsort(dim=1)
    starts, lengths = torch.randint(0, 13, (n, 1)), torch.randint(4, 15, (n, 1))
    place = torch.arange(LENGTH).expand(n, -1)
    return letters.gather(1, torch.where(place < starts, place, starts + (place - starts) % lengths)), starts, lengths


def known(tokens, starts, lengths):
    """The next tokens that can be known, -1 for the others."""
    return tokens[:, 1:].masked_fill(torch.arange(1, LENGTH) <= starts + lengths, -1)


def in_double(attention, x):
    """What a layer makes of x in float64: the scores with -inf where a key is hidden, the weights, the output."""
    exact, hidden = copy.deepcopy(attention).double(), torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    output, weights = exact(x.double(), x.double(), x.double(), attn_mask=hidden, average_attn_weights=False)
    projected = x.double() @ exact.in_proj_weight.T + exact.in_proj_bias
    q, k, _ = projected.unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
    return {"masked": scores.masked_fill(hidden, -torch.inf), "weights": weights, "output": output}


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "induction")
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.02, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, STEPS, pct_start=0.1)
    for step in range(STEPS):
        tokens, *word = sequences(BATCH)
        record = {}
        loss = functional.cross_entropy(model(tokens, record)[:, :-1].flatten(0, 1), known(tokens, *word).flatten(),
                                        ignore_index=-1)
        price = SPREAD * max(0, 2 * step / STEPS - 1)  # nothing before it can do its task
        for i in range(2):
            weights = record[f"layers.{i}.weights"]
            loss = loss - price * (weights * (weights + 1e-9).log2()).sum(dim=3).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        tokens, starts, lengths = sequences(1024)
        record = {}
        guess, wanted = model(tokens, record)[:, :-1].argmax(dim=2), known(tokens, starts, lengths)
        print(f"{100 * (guess == wanted)[wanted >= 0].float().mean():.2f} % of the known letters come out right")
        place = torch.arange(LENGTH)
        behind = torch.zeros(len(tokens), LENGTH, LENGTH)  # keys behind the same letter as the query's
        behind[:, :, 1:] = (tokens[:, :, None] == tokens[:, None, :-1]) & (place[1:] <= place[:, None])
        again = wanted >= 0
        first = (place > 0) & (place < starts + lengths)
        for i in range(2):
            for head in range(HEADS):
                w = record[f"layers.{i}.weights"][:, head]
                previous = functional.pad(w.diagonal(-1, 1, 2), (1, 0))[first].mean()
                induction = (w * behind).sum(dim=2)[:, :-1][again].mean()
                print(f"layer {i} head {head}: the previous letter {100 * previous:.0f} %, "
                      f"behind the same letter {100 * induction:.0f} %")

        tokens = torch.tensor([[ALPHABET.index(letter) for letter in TEXT]])
        record = {}
        logits = model(tokens, record)
        recorded = {"tokens": tokens, "logits": logits}
        for i, layer in enumerate(model.layers):
            recorded[f"layers.{i}.input"] = record[f"layers.{i}.input"]
            recorded.update({f"layers.{i}.{name}": value for name, value in
                             in_double(layer["self_attn"], record[f"layers.{i}.input"]).items()})

    made_by = {"made_by": "weights/make_induction.py", "torch": torch.__version__, "seed": SEED}
    mha_case.write(directory / "model.safetensors", {name: value.numpy() for name, value in model.state_dict().items()},
                   {"format": "pt", **made_by})
    mha_case.write(directory / "recorded.safetensors",
                   {name: value.numpy() for name, value in recorded.items()}, made_by)
    config = {"model_type": "multihead_attention", "d_model": WIDTH, "num_attention_heads": HEADS, "bias": True,
              "causal": True}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (directory / "tokens.txt").write_text("\n".join(TEXT) + "\n")


if __name__ == "__main__":
    main()
