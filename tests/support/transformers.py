"""A small transformer out of ordinary modules, as a researcher writes one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import Tensor, nn

from stoilo.learn.cells.tensor import Split

__all__ = ["Attention", "Block", "LanguageModel", "plan_block", "plan_model"]

UNIT = 4  # a head's width


class Attention(nn.Module):
    """Attention of grouped queries; it takes the number of heads from what it sees."""

    def __init__(self, width: int, heads: int, kv_heads: int, unit: int = UNIT) -> None:
        super().__init__()
        self.unit = unit
        self.q = nn.Linear(width, heads * unit)
        # A bias of keys moves nothing: its gradient is zero but for rounding.
        self.k = nn.Linear(width, kv_heads * unit, bias=False)
        self.v = nn.Linear(width, kv_heads * unit)
        self.o = nn.Linear(heads * unit, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, length, width) of the same."""
        q, k, v = (self._heads(layer(x)) for layer in (self.q, self.k, self.v))
        each = q.shape[1] // max(k.shape[1], 1)
        k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        soft = (q @ k.mT / self.unit**0.5).softmax(-1)
        return self.o((soft @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.unit).transpose(1, 2)


class Block(nn.Module):
    """Attention and an MLP, each in a residual; normalised before them, or after the sum."""

    def __init__(
        self, width: int, heads: int, kv_heads: int, inner: int, *,
        norm_first: bool = True, dropout: float = 0.0, unit: int = UNIT,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention = Attention(width, heads, kv_heads, unit)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inside, self.outside = nn.Dropout(dropout), nn.Dropout(dropout)
        self.norm_first = norm_first

    def mlp(self, x: Tensor) -> Tensor:
        """Return the MLP's output."""
        return self.down(self.inside(F.gelu(self.up(x))))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, length, width) of the same."""
        if self.norm_first:
            x = x + self.outside(self.attention(self.norm1(x)))
            return x + self.outside(self.mlp(self.norm2(x)))  # type: ignore[no-any-return]
        x = self.norm1(x + self.outside(self.attention(x)))
        return self.norm2(x + self.outside(self.mlp(x)))  # type: ignore[no-any-return]


class LanguageModel(nn.Module):
    """Blocks between an embedding and a layer that shares its weights."""

    def __init__(
        self, words: int, length: int, width: int, heads: int, kv_heads: int, inner: int,
        *, blocks: int = 2, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed, self.places = (
            nn.Embedding(words, width),
            nn.Embedding(length, width),
        )
        self.blocks = nn.ModuleList(
            Block(width, heads, kv_heads, inner, dropout=dropout) for _ in range(blocks)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (batch, words, length) of tokens (batch, length)."""
        x = self.embed(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).transpose(1, 2)  # type: ignore[no-any-return]


def plan_block(
    heads: int, path: str = "", parts: Sequence[int] | None = None, unit: int = UNIT
) -> dict[str, str | Split]:
    """Return the plan of one block."""
    given = tuple(parts) if parts else None
    kv = Split("column", unit=unit, parts=given, queries=heads)
    return {
        f"{path}attention.q": Split("column", unit=unit, parts=given),
        f"{path}attention.k": kv,
        f"{path}attention.v": kv,
        f"{path}attention.o": Split("row", unit=unit, parts=given),
        f"{path}up": "column",
        f"{path}down": "row",
        f"{path}inside": "inside",
        **{f"{path}{name}": "sequence" for name in ("norm1", "norm2", "outside")},
    }


def plan_model(heads: int, blocks: int = 2) -> dict[str, str | Split]:
    """Return the plan of a language model."""
    found: dict[str, str | Split] = {"embed": "vocabulary", "head": "vocabulary"}
    for block in range(blocks):
        found |= plan_block(heads, f"blocks.{block}.")
    return found | {"places": "sequence", "norm": "sequence"}
