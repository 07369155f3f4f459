"""What a frozen verifier was built with: its root, its place in the row of releases, floors.

The file lies inside the verifier's own tree, whose digest the launcher holds, so it is as
trusted as the program itself. Where it is present the root comes from it and from nowhere
else; a frozen program without it refuses all work. An unfrozen one has none and takes its
root from ``--root FILE`` (design §3).
"""

from __future__ import annotations

import base64
import binascii
import sys
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.errors import TrustError

__all__ = [
    "BUILT_FILE",
    "Built",
    "BuiltFloors",
    "is_frozen",
    "load_built",
    "parse_built",
    "render_built",
]

BUILT_FILE: Final = "built.json"
"""Beside this module, in the frozen tree only."""

MAX_BUILT_BYTES: Final = 1024 * 1024

_Version = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_PartName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9-]{1,32}\Z")]
_Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._+-]{1,64}\Z")]


class BuiltFloors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lowest versions of the day of the build; see `stoilo.executor.bundle.Floors`.

    Attributes:
        root: TUF root version.
        targets: TUF targets version.
        epoch: gate epoch.
        log_size: leaves in the log.
        serials: part → lowest serial of its archive.
    """

    root: _Version = 1
    targets: _Version = 1
    epoch: _Version = 1
    log_size: _Size = 0
    serials: dict[_PartName, _Version] = {}


class Built(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``built.json`` of one verifier.

    Attributes:
        format: version of this file.
        part: always the verifier.
        platform: for example ``x86_64-linux``.
        version: for people.
        serial: rises with every release of the verifier.
        commit: of the source it was built from; empty when not said.
        root: TUF root metadata, base64: the only root this verifier knows.
        origin: the project that it belongs to.
        rehearsal: whether it belongs to a staging root.
        development: whether roots of development and rehearsal are accepted.
        floors: lowest versions accepted.
    """

    format: Literal["stoilo-built/1"]
    part: Literal["verifier"]
    platform: _Word
    version: _Word
    serial: _Version
    commit: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{0,64}\Z")]
    root: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BUILT_BYTES)]
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    rehearsal: bool = False
    development: bool = False
    floors: BuiltFloors = BuiltFloors()

    def root_bytes(self) -> bytes:
        """Return the root metadata, as `parse_built` has checked it."""
        return base64.b64decode(self.root, validate=True)


def parse_built(data: bytes) -> Built:
    """Parse a built file, strictly; raises ``STO-F035``."""
    if len(data) > MAX_BUILT_BYTES:
        raise _broken("it is too large")
    try:
        built = msgspec.json.decode(data, type=Built)
        built.root_bytes()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _broken(str(error)[:200]) from error
    except (binascii.Error, ValueError) as error:
        raise _broken("its root is not base64") from error
    return built


def render_built(built: Built) -> bytes:
    """Return the file's bytes; equal for equal contents."""
    return msgspec.json.encode(built, order="sorted") + b"\n"


def is_frozen() -> bool:
    """Say whether this is a frozen program, which has no switches (I4)."""
    return bool(getattr(sys, "frozen", False))


def load_built(path: Path | None = None, *, frozen: bool | None = None) -> Built | None:
    """Return what this program was built with; None for an unfrozen one without it.

    Args:
        path: of the file; the one beside this module unless a test says another.
        frozen: whether the file must exist; None asks the interpreter.

    Raises:
        TrustError: STO-F035 when it is broken, or missing in a frozen program.
    """
    place = Path(__file__).with_name(BUILT_FILE) if path is None else path
    try:
        with place.open("rb") as file:
            data = file.read(MAX_BUILT_BYTES + 1)
    except FileNotFoundError:
        if is_frozen() if frozen is None else frozen:
            raise _broken("there is none in this frozen program") from None
        return None
    except OSError as error:
        raise _broken("it cannot be read") from error
    return parse_built(data)


def _broken(reason: str) -> TrustError:
    """Return ``STO-F035``."""
    return TrustError(
        "STO-F035",
        f"the built file of this verifier does not hold: {reason}",
        hint="fetch the program again from its project; it runs nothing like this",
    )
