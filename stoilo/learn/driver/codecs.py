"""Codecs of arrays: what each is called, costs and loses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar, Literal, Protocol

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Order
from stoilo.learn.core.states import Plain

MOST_BLOCK = 1 << 20


class Transport(Protocol):
    """One codec and its settings."""

    @property
    def share(self) -> float:
        """About how many bytes travel for one byte of float32, to estimate times."""

    def ask(self, order: Order) -> Mapping[str, Plain] | None:
        """Return what the task is told; None when it need not encode."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Arrays as they are: nothing to be told, nothing to be decoded."""

    share: ClassVar = 1.0

    def ask(self, order: Order) -> None:  # noqa: ARG002 - a codec's interface
        """Say that the task need not encode."""
        return


@dataclass(frozen=True, slots=True)
class Compressed:
    """Without loss: the bytes of equal rank together, each rank compressed by zlib.

    Mantissas of gradients are noise, signs and exponents are not: a float32 needs about 27
    of its 32 bits. Where whole layers are still, or many entries are zero, much less. The
    frame is described at `stoilo.learn.kernels.encoding.compress`.
    """

    share: ClassVar = 0.85

    def ask(self, order: Order) -> Mapping[str, Plain]:  # noqa: ARG002 - a codec's interface
        """Return the codec's name."""
        return {"codec": "compressed"}


@dataclass(frozen=True, slots=True)
class Ternary:
    """Of each entry only -1, 0 or 1 times its block's largest size, drawn without bias.

    What is noise in one answer averages out over many: the fewer samples or answers make
    a step, the smaller the learning rate must be. Where a kernel returns parameters, the
    way from the order's version travels, and it is added to that version here.

    Source: Wen et al. 2017, "TernGrad", §3, with a scale for each block of a tensor instead
    of one a tensor (as buckets in Alistarh et al. 2017, "QSGD", §3.3): the more entries
    share a scale, the more noise, above all where few are large. Nothing is clipped before
    the draw, so the expectation of what arrives is what was computed (to 2^-24 of the
    scale). The frame is described at `stoilo.learn.kernels.encoding.make_levels`.

    Attributes:
        block: entries that share a scale. Each costs 1.6 bits and its part of a scale:
            1.73 bits with blocks of 256 float32.
    """

    block: int = 256

    def __post_init__(self) -> None:
        """Refuse a block that no scale could be shared by."""
        check_block(self.block)

    @property
    def share(self) -> float:
        """Of float32."""
        return 1.6 / 32 + 1 / self.block

    def ask(self, order: Order) -> Mapping[str, Plain]:
        """Return the levels, and a seed that copies of the same order share."""
        return Quantised(2, block=self.block).ask(order)


@dataclass(frozen=True, slots=True)
class Half:
    """Two bytes an entry, rounded to nearest: biased by at most half a step.

    A step is 2^-10 of the entry with ``float16``, whose range is 6e-8 to 65504 (larger sizes
    become that), 2^-7 with ``bfloat16``, which has float32's range.
    """

    kind: Literal["float16", "bfloat16"] = "bfloat16"
    share: ClassVar = 0.5

    def __post_init__(self) -> None:
        """Refuse another type."""
        _refuse_unless(self.kind in ("float16", "bfloat16"), self)

    def ask(self, order: Order) -> Mapping[str, Plain]:  # noqa: ARG002 - a codec's interface
        """Return the type."""
        return {"codec": "half", "kind": self.kind}


@dataclass(frozen=True, slots=True)
class Quantised:
    """Even levels between minus and plus a block's scale, drawn without bias.

    Source: Alistarh et al. 2017, "QSGD", §3.1 and §3.3 (buckets); the levels are not fitted to
    the entries, which would shrink them. ``max`` has less noise than the paper's ``l2``.

    Attributes:
        bits: an entry: 8 (255 levels), 4 (15), 2 (3 levels, five entries a byte: `Ternary`)
            or 1 (minus or plus the scale: much noise).
        norm: of a block, its scale.
        block: entries that share a scale.
    """

    bits: Literal[1, 2, 4, 8] = 8
    norm: Literal["max", "l2"] = "max"
    block: int = 256

    def __post_init__(self) -> None:
        """Refuse other widths, norms and blocks."""
        _refuse_unless(self.bits in _LEVELS and self.norm in ("max", "l2"), self)
        check_block(self.block)

    @property
    def share(self) -> float:
        """Of float32."""
        return self.bits / 32 + 1 / self.block

    def ask(self, order: Order) -> Mapping[str, Plain]:
        """Return the levels, and a seed that copies of the same order share."""
        return {
            "codec": "levels",
            "base": _LEVELS[self.bits],
            "block": self.block,
            "norm": self.norm,
            "seed": derive_seed(order),
        }


@dataclass(frozen=True, slots=True)
class OneBit:
    """The sign of each entry times the mean size of its block: biased, nothing is drawn.

    Source: Seide et al. 2014, §3. Alone it need not converge; see `Remainder`.
    """

    block: int = 256

    def __post_init__(self) -> None:
        """Refuse a block that no scale could be shared by."""
        check_block(self.block)

    @property
    def share(self) -> float:
        """Of float32."""
        return 1 / 32 + 1 / self.block

    def ask(self, order: Order) -> Mapping[str, Plain]:  # noqa: ARG002 - a codec's interface
        """Return the levels: two, by sign."""
        return {"codec": "levels", "base": 2, "block": self.block, "norm": "mean"}


@dataclass(frozen=True, slots=True)
class TopK:
    """The entries of largest size, exactly, with their places; biased: others are lost.

    Attributes:
        kept: share of an array's entries that travel, rounded up.
    """

    kept: float = 0.01

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        _refuse_unless(0.0 < self.kept <= 1.0, self)

    @property
    def share(self) -> float:
        """Of float32: place and value."""
        return 2 * self.kept

    def ask(self, order: Order) -> Mapping[str, Plain]:  # noqa: ARG002 - a codec's interface
        """Return the share."""
        return {"codec": "largest", "share": self.kept}


@dataclass(frozen=True, slots=True)
class PowerSGD:
    """A matrix as the product of two thin ones; biased: what the rank does not hold is lost.

    An array's first axis are the rows. What has one axis, or would not become smaller, travels
    as it is. Source: Vogels et al. 2019, "PowerSGD", algorithm 1. Its warm start needs last
    step's factor, which a volunteer has not: a second round of the power iteration in the task
    stands for it and costs no bytes.

    Attributes:
        rank: columns of each factor.
        rounds: of the power iteration.
    """

    rank: int = 2
    rounds: int = 2
    share: ClassVar = 0.1  # of usual layers; it depends on their shapes

    def __post_init__(self) -> None:
        """Refuse a rank or rounds below one."""
        _refuse_unless(min(self.rank, self.rounds) >= 1, self)

    def ask(self, order: Order) -> Mapping[str, Plain]:
        """Return rank, rounds, and the seed of the start."""
        return {
            "codec": "product",
            "rank": self.rank,
            "rounds": self.rounds,
            "seed": derive_seed(order),
        }


@dataclass(frozen=True, slots=True)
class Remainder:
    """A codec, and what it left over by another: unbiased when the second one is.

    What error feedback does elsewhere: a worker's residual would have to stay with the
    worker, and a volunteer keeps nothing. Source: Horváth, Richtárik 2021, "A Better
    Alternative to Error Feedback", definition 3.

    Attributes:
        first: the biased codec.
        rest: of what it left over.
    """

    first: Transport = field(default_factory=TopK)
    rest: Transport = field(default_factory=Ternary)

    @property
    def share(self) -> float:
        """The sum of both."""
        return self.first.share + self.rest.share

    def ask(self, order: Order) -> Mapping[str, Plain]:
        """Return both, and a seed that copies of the same order share."""
        both = {
            name: _ask_part(codec, order)
            for name, codec in (("first", self.first), ("rest", self.rest))
        }
        return {"codec": "both", **both, "seed": derive_seed(order)}


@dataclass(frozen=True, slots=True)
class PerLayer:
    """A codec for each array: that of the first pattern that its name fits.

    Attributes:
        rules: patterns as of file names (``*.bias``), each with its codec.
        other: of arrays that no pattern fits.
    """

    rules: tuple[tuple[str, Transport], ...]
    other: Transport = field(default_factory=Raw)

    @property
    def share(self) -> float:
        """The largest of all: which arrays are large is not known here."""
        return max(codec.share for codec in self.every)

    @property
    def every(self) -> tuple[Transport, ...]:
        """All codecs, that of the rest last."""
        return (*(one for _, one in self.rules), self.other)

    def ask(self, order: Order) -> Mapping[str, Plain]:
        """Return each array's codec, and a seed that copies of the same order share."""
        told: dict[str, Plain] = {
            name: _ask_part(self.choose(name), order)
            for name in order.snapshot.parameters
        }
        return {"codec": "layers", "of": told, "seed": derive_seed(order)}

    def choose(self, name: str) -> Transport:
        """Return the codec of an array."""
        fitting = (codec for rule, codec in self.rules if fnmatchcase(name, rule))
        return next(fitting, self.other)


_LEVELS = {1: 2, 2: 3, 4: 15, 8: 255}  # bits → levels


def derive_seed(order: Order) -> int:
    """Return a seed that copies of the same order share, and no other order."""
    # Without a common seed no quorum of copies could ever agree on the draw.
    words = f"{order.work}\0{order.snapshot.version}\0{order.settings.get('seed')}"
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big")


def check_block(block: int) -> None:
    """Refuse (``STO-T040``) a number of entries that no scale could be shared by."""
    if type(block) is not int or not 1 <= block <= MOST_BLOCK:
        raise UsageError(
            "STO-T040",
            f"a block of {block} entries cannot be encoded",
            hint=f"a whole number from 1 to {MOST_BLOCK}; 256 is usual",
        )


def _refuse_unless(is_good: bool, codec: Transport) -> None:
    if not is_good:
        raise UsageError("STO-T040", f"{codec} is no codec of arrays")


def _ask_part(codec: Transport, order: Order) -> Plain:
    """Return what a codec within another is told: the draw is the outer one's."""
    told = codec.ask(order)
    if told is None:
        return {"codec": "raw"}
    if told["codec"] == "layers":
        raise UsageError("STO-T040", "a codec for each layer cannot be within another")
    return {name: value for name, value in told.items() if name != "seed"}
