"""What a trainer asks of a cell's members beside `gang`'s messages, and how they answer.

Frames are those of `stoilo.learn.store.protocol`. All of it is data: the researcher's class
and loss are inputs by digest, staged like parameters and data, and read in `worker` alone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from stoilo.core.errors import UsageError
from stoilo.learn.cells.timeline import Span

if TYPE_CHECKING:
    from stoilo.learn.cells.links import Links

# Layouts that members know, by the name of their class, and where each is.
LAYOUTS: dict[str, str] = {
    "Data": "stoilo.learn.cells.data",
    "Pipeline": "stoilo.learn.cells.pipeline",
    "Tensor": "stoilo.learn.cells.tensor",
}


class Layout(Protocol):
    """How the members of a cell execute an order together; a dataclass of plain values."""

    def execute(
        self, kernel: str, kwargs: dict[str, Any], links: Links
    ) -> dict[str, Any] | None:
        """Do this member's share; every member is called with the same order.

        Args:
            kernel: ``gradient``, ``local_steps`` or ``evaluate`` of
                `stoilo.learn.kernels.torch_models`.
            kwargs: what that kernel gets.
            links: to the other members.

        Returns:
            At rank 0 what the kernel returns; None elsewhere.
        """


class Work(msgspec.Struct, frozen=True):
    """For a member's worker process while its group stands; `Done` or `Failed` answers."""

    group: str


class Open(Work, frozen=True, tag="open"):
    """Load what orders need."""

    layout: str  # of `LAYOUTS`
    options: bytes  # its values, JSON
    limit_s: float  # how long any call between members may take


class Join(Work, frozen=True, tag="join"):
    """Form the links."""

    port: int  # where rank 0 lets the others find each other


class Execute(Work, frozen=True, tag="execute"):
    """Execute one order."""

    kernel: str
    source: str  # digest of a text that makes the arguments
    entry: str  # its function that returns them
    arguments: bytes  # encoded; large ones are among `blobs`
    blobs: list[str]  # digests
    seed: (
        str  # of drawing without a seed, 64 hexadecimal digits; the same when repeated
    )
    now: int  # what a clock says, s since 1970


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A member has done it."""

    value: bytes = b""  # of an order, encoded like a task's result; rank 0's
    computed_s: float = 0.0
    # Of `Open`: rank 0's port for `Join`; what must be the same at all members, by
    # library; and the only group that the operator lets this one be in, if not any
    port: int = 0
    versions: dict[str, str] = {}
    peers: list[str] = []
    spans: list[Span] = []  # of an order, where the layout notes who did what when


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The researcher's own code raised, or the links broke."""

    code: str
    error_type: str
    error_text: str
    is_link: bool  # a peer died, or was silent for too long


def write_layout(layout: Layout | None) -> tuple[str, bytes]:
    """Return name and options as they travel; `Data` with its usual ones for None."""
    if layout is None:
        return "Data", b"{}"
    return type(layout).__name__, msgspec.json.encode(layout)


def read_layout(name: str, options: bytes) -> Layout:
    """Return the layout of that name, or raise ``STO-T040``."""
    try:
        kind = getattr(importlib.import_module(LAYOUTS[name]), name)
        found: Layout = msgspec.json.decode(options, type=kind)
    except (KeyError, ImportError, AttributeError, msgspec.MsgspecError) as error:
        why = f"{name[:40]!r}: {type(error).__name__} {str(error)[:160]}"
        raise UsageError("STO-T040", f"no layout of cells: {why}") from None
    return found


def read_versions() -> dict[str, str]:
    """Return what must be the same at all members for the same bits."""
    of = importlib.metadata.version
    python = platform.python_version().rpartition(".")[0]
    return {"stoilo": of("stoilo"), "torch": of("torch"), "python": python}
