"""How far a run is, told while it runs: a step, a fraction, perhaps a state to go on from.

A frame of progress is an encoded skeleton that the jailed child writes; hostile outside.

    {"step": int, "fraction": float or None, "state": bytes or None}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.errors import TrustError
from stoilo.sandbox.process.channel import FRAME_HEADER, PROGRESS_FLAG

STATE_FRACTION = 4
"""A state may take this part of the result's limit: one over it."""
MOST_STEPS = 1 << 53
UNREADABLE_STATE = "STO-G122"
"""What a run ends with that cannot read the state it should go on from."""
_HEADER_BYTES = 256  # around a state in its frame


class FrameTooLargeError(Exception):
    """A frame of progress is larger than the run may send."""


class Progress(msgspec.Struct, frozen=True):
    """What a run tells of itself.

    Attributes:
        step: how many states were yielded, or items are done.
        fraction: 0 to 1, None where the task does not say.
        state: encoded value to go on from; None: there is none.
    """

    step: int
    fraction: float | None = None
    state: bytes | None = None


def largest_state(result_bytes: int) -> int:
    """Return the largest encoded state, bytes, of a run with this result limit."""
    return result_bytes // STATE_FRACTION


def render_progress(progress: Progress) -> bytes:
    """Return the frame."""
    fields: dict[Any, Any] = {
        "step": progress.step,
        "fraction": progress.fraction,
        "state": progress.state,
    }
    return skeleton.encode(fields)


def parse_progress(frame: bytes) -> Progress | None:
    """Return what a frame (hostile) tells, None when it is none."""
    try:
        fields = skeleton.decode(frame)
    except TrustError:
        return None
    if not isinstance(fields, dict) or set(fields) != {"step", "fraction", "state"}:
        return None
    step, fraction, state = fields["step"], fields["fraction"], fields["state"]
    if type(step) is not int or not 0 <= step <= MOST_STEPS:
        return None
    if fraction is not None and (type(fraction) is not float or not 0 <= fraction <= 1):
        return None
    if state is not None and not isinstance(state, bytes | memoryview):
        return None
    return Progress(step, fraction, None if state is None else bytes(state))


def take_progress(buffer: bytearray, result_bytes: int | None) -> bytes | None:
    """Take the next whole frame of progress out of what a result pipe gave.

    Args:
        buffer: what was read (hostile) and not yet taken; loses the frame.
        result_bytes: limit of the result; None where no progress was asked for.

    Returns:
        The frame; None when the next frame is not all there, or is the result.

    Raises:
        FrameTooLargeError: it announces more than the run may send.
    """
    header = int.from_bytes(buffer[:FRAME_HEADER], "big")
    if len(buffer) < FRAME_HEADER or not header & PROGRESS_FLAG:
        return None
    size = header ^ PROGRESS_FLAG
    if result_bytes is None or size > largest_state(result_bytes) + _HEADER_BYTES:
        raise FrameTooLargeError
    end = FRAME_HEADER + size
    if len(buffer) < end:
        return None
    frame = bytes(buffer[FRAME_HEADER:end])
    del buffer[:end]
    return frame


class Teller:
    """Writes frames of progress from inside the jail, no more often than asked for.

    What it leaves out changes no answer: whether a frame leaves depends on the clock, what
    the run computes does not.

    Args:
        write: takes one frame.
        gap_s: least time between two, s.
        most_state: larger states are told of without them, bytes.
        clock: s.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        gap_s: float,
        most_state: int,
        clock: Callable[[], float],
    ) -> None:
        self._write = write
        self._gap_s = gap_s
        self._most_state = most_state
        self._clock = clock
        self._next = clock()

    def tell(self, progress: Progress) -> None:
        """Write the frame if it is time for one."""
        now = self._clock()
        if progress.state is not None and len(progress.state) > self._most_state:
            progress = msgspec.structs.replace(progress, state=None)
        if now >= self._next:
            self._next = now + self._gap_s
            self._write(render_progress(progress))
