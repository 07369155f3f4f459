import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.mix(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(x.shape)
        return self.out(mixed)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.before = nn.LayerNorm(width)
        self.after = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.feed(self.after(x))


class Model(nn.Module):
    def __init__(self, symbols, width, layers):
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.layers = nn.Sequential(*[Layer(width, 4) for _ in range(layers)])
        self.head = nn.Linear(width, symbols)

    def forward(self, tokens):
        return self.head(self.layers(self.symbols(tokens)))


def run(n):
    torch.manual_seed(3)
    model = Model(40, 64, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 40, (8, 33))
    for _ in range(n):
        optimizer.zero_grad()
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(
            scores.reshape(-1, 40), tokens[:, 1:].reshape(-1)
        )
        loss.backward()
        optimizer.step()
    return loss.item()
