"""A transformer that learns this project's English, whole or split over processes.

python examples/language_model.py                          # threads of this process
python -m torch.distributed.run --nproc-per-node 2 examples/language_model.py

The first is DiLoCo, whose rounds of local steps may run on volunteers. The second splits
each layer, the alphabet and the loss over the processes, trains by an ordinary loop and
ends where one process does. Either must foresee held-out text better than the letters'
frequencies do, which is as far as a model comes that does not read what stands before.
"""

import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from commandline import run
from torch import nn
from torch.nn.functional import cross_entropy

import stoilo
from stoilo import learn
from stoilo.learn.cells.layers import Region
from stoilo.learn.cells.tensor import Split, measure_norm, split

TEXT = Path(__file__).resolve().parents[1] / "THREATS.md"
LENGTH, WIDTH, HEADS, BLOCKS = 48, 48, 4, 2
ROUNDS = learn.FederatedSettings(
    5, learn.LocalWork(rate=0.003, batch=16, steps=30, optimizer="adamw")
)


class Block(nn.Module):
    """Attention to what stands before, and an MLP; each normalised first, in a residual."""

    def __init__(self, width, heads):
        super().__init__()
        self.unit = width // heads
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def attention(self, x):
        """Return (batch, length, width); how many heads there are, it sees."""
        q, k, v = [
            part.view(x.shape[0], x.shape[1], -1, self.unit).transpose(1, 2)
            for part in self.joined(x).chunk(3, -1)
        ]
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        """Return (batch, length, width)."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    """Blocks between an embedding and the layer that shares its weights."""

    def __init__(self, letters, length, width, heads, blocks):
        super().__init__()
        self.embed, self.places = (
            nn.Embedding(letters, width),
            nn.Embedding(length, width),
        )
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(blocks)])
        self.norm, self.head = (
            nn.LayerNorm(width),
            nn.Linear(width, letters, bias=False),
        )
        for table in (self.embed, self.places):
            nn.init.normal_(table.weight, std=0.1)
        self.head.weight = self.embed.weight

    def forward(self, letters):
        """Return scores (batch, letters, length) of what comes next."""
        x = self.embed(letters) + self.places(torch.arange(letters.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).transpose(1, 2)


UNIT = WIDTH // HEADS
PLAN: dict[str, str | Split] = {"embed": "vocabulary", "head": "vocabulary"}
for number in range(BLOCKS):
    PLAN |= {
        f"blocks.{number}.joined": Split("column", unit=UNIT, blocks=3),
        f"blocks.{number}.out": Split("row", unit=UNIT),
        f"blocks.{number}.up": "column",
        f"blocks.{number}.down": "row",
    }


def load():
    """Return training and held-out text, each (samples, LENGTH) with what follows; letters."""
    text = TEXT.read_text(encoding="utf-8")
    letters = sorted(set(text))
    found = torch.tensor([letters.index(letter) for letter in text])
    windows = found.unfold(0, LENGTH + 1, LENGTH)
    last = torch.arange(len(windows)) % 10 == 9
    pairs = [(part[:, :-1], part[:, 1:]) for part in (windows[~last], windows[last])]
    return pairs[0], pairs[1], len(letters)


def make_model(letters):
    """Return the model before any training."""
    torch.manual_seed(0)
    return LanguageModel(letters, LENGTH, WIDTH, HEADS, BLOCKS)


def frequencies_loss(train, held_out, letters):
    """Return the mean loss of who knows how often each letter stands in the training text."""
    counts = 1.0 + torch.bincount(train[1].flatten(), minlength=letters)
    return float(-(counts / counts.sum()).log()[held_out[1]].mean())


async def main(conn: stoilo.Connection | None) -> None:
    """Train by DiLoCo on four parts of the text."""
    train, held_out, letters = load()
    model = learn.TorchModel(make_model(letters), cross_entropy)
    data, options = tuple(t.numpy() for t in train), learn.TrainerOptions(tasks=4)
    async with learn.DiLoCoTrainer(
        conn, model, data, ROUNDS, options=options
    ) as trainer:
        trained = await trainer.train()
    with torch.no_grad():
        loss = float(cross_entropy(trained.model(held_out[0]), held_out[1]))
    tell(loss, frequencies_loss(train, held_out, letters))


def tell(loss, bound):
    """Print what was reached, and hold it against the letters' frequencies."""
    print(f"held-out text: {loss:.3f} nats a letter; by frequencies alone {bound:.3f}")
    assert loss < 0.9 * bound


def train_split(region, steps=150):
    """Train as one of some processes; return the held-out loss and the norms on the way."""
    train, held_out, letters = load()
    model = make_model(
        letters
    )  # whole, by one seed: the start is the same for any number
    shares = split(model, PLAN, region)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    order = torch.Generator().manual_seed(1)
    norms = []
    for _ in range(steps):
        rows = torch.randint(len(train[0]), (16,), generator=order)
        optimizer.zero_grad()
        cross_entropy(model(train[0][rows]), train[1][rows]).backward()
        norm = measure_norm(model, shares, region)
        nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)
        optimizer.step()
        norms.append(float(norm))
    with torch.no_grad():
        loss = float(cross_entropy(model(held_out[0]), held_out[1]))
    print(
        f"process {region.rank}: {sum(p.numel() for p in model.parameters()):,} weights"
    )
    return loss, norms, frequencies_loss(train, held_out, letters)


def be_member() -> None:
    """Train as one of the processes that torch's launcher started."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    region = Region(dist.get_rank(), dist.get_world_size())
    loss, norms, bound = train_split(region)
    assert math.isfinite(sum(norms))
    if region.rank == 0:
        tell(loss, bound)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:
        be_member()
    else:
        run(main, __doc__)
