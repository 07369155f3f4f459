"""Codecs of arrays: how an order is told to answer, and answers become arrays again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import ClassVar, Literal, Protocol, TypeAlias, cast, get_args

import numpy as np

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.orders import Order
from stoilo.learn.core.states import Plain
from stoilo.learn.core.tensors import Array, Form
from stoilo.learn.kernels.encoding import unpack

TransportName: TypeAlias = Literal[
    "raw", "compressed", "ternary", "float16", "bfloat16", "int8"
]
MOST_BLOCK = 1 << 20
_KEY = "transport"


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
        return max(
            codec.share for codec in (*(one for _, one in self.rules), self.other)
        )

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
_EXACT = ("compressed", "raw")  # codecs that lose nothing


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


def as_transport(wanted: Transport | TransportName) -> Transport:
    """Return the codec of that name with its usual settings, or the codec itself.

    Raises:
        UsageError: ``STO-T040`` for another name.
    """
    if not isinstance(wanted, str):
        return wanted
    known: dict[str, Transport] = {
        "raw": Raw(),
        "compressed": Compressed(),
        "ternary": Ternary(),
        "float16": Half("float16"),
        "bfloat16": Half(),
        "int8": Quantised(),
    }
    if wanted in known:
        return known[wanted]
    raise UsageError(
        "STO-T040",
        f"arrays cannot travel as {wanted!r}",
        hint=f"one of {', '.join(get_args(TransportName))}, or an object of their classes",
    )


def ask(order: Order, transport: Transport) -> Order:
    """Return the order with what its task must be told to encode its answer."""
    told = None if order.kernel == "evaluate" else transport.ask(order)
    if told is None:
        return order
    # In the settings it is part of the job's key and of checkpoints: an answer is decoded
    # as it was asked for, also after a restart with other options.
    return replace(order, settings={**order.settings, _KEY: dict(told)})


def asked(order: Order) -> dict[str, Plain] | None:
    """Return what the bytes of the order's answer mean: codec and constants, no seed."""
    told = order.settings.get(_KEY)
    if told is None:
        return None
    known = cast("dict[str, Plain]", told)  # ours: `ask` wrote it
    return {name: value for name, value in known.items() if name != "seed"}


def is_near_in_copies(told: Mapping[str, Plain] | None) -> bool:
    """Whether copies that differ in their last bits still arrive as nearly the same.

    A draw, a choice of places and a factor turn the last bit of one processor into more.
    """
    if told is None or told["codec"] != "layers":
        return told is None or told["codec"] in (*_EXACT, "half")
    of = cast("dict[str, dict[str, Plain]]", told["of"])  # ours: `PerLayer.ask` made it
    return all(is_near_in_copies(one) for one in of.values())


def receive(raw: object, order: Order, forms: Mapping[str, Form]) -> object:
    """Return an answer (hostile, unchecked) with its arrays decoded.

    Names that are missing stay so, and everything else is as it came: the acceptance
    check comes after this one.

    Raises:
        TrustError: ``STO-T010`` for arrays that are not encoded as was asked for.
    """
    told = asked(order)
    if told is None or not isinstance(raw, dict):
        return raw
    plain = {name: (form.dtype, form.shape) for name, form in forms.items()}
    read: Callable[..., dict[str, Array]] = unpack  # untyped: it travels as source
    try:
        found = read(told, raw.get("tensors"), plain)
    except ValueError as fault:
        raise TrustError(
            "STO-T010", f"a volunteer's answer is not used: {fault}"
        ) from None
    if told["codec"] != "compressed" and order.gives_parameters:
        base = order.snapshot.parameters
        with np.errstate(over="ignore"):  # the acceptance check sees what is not finite
            found = {name: base[name] + way for name, way in found.items()}
    return {**raw, "tensors": found}


def count_bytes(raw: object) -> int:
    """Return how many bytes an answer's arrays travelled as; 0 for what has none."""
    tensors = raw.get("tensors") if isinstance(raw, dict) else None
    arrays = tensors.values() if isinstance(tensors, dict) else ()
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
