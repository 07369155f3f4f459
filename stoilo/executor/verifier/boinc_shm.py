"""BOINC's shared memory: eight channels of one message each, in a mapped file of the slot.

    offset = channel · 1024:  byte 0 full (1) or empty (0), then text, ended by NUL

A sender writes only into an empty channel, text first and flag last; a receiver copies,
then clears the flag. The client makes the file (``boinc_mmap_file``) before it starts the
application. What the other side wrote is hostile: at most 1,023 bytes a message are looked
at, for the few tags that are known, and all else is ignored.
Source: BOINC, ``lib/app_ipc.h`` and ``api/boinc_api.cpp`` (facts: boinc.md §4.3).
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from dataclasses import dataclass
from enum import Enum, IntEnum
from pathlib import Path
from typing import Final, Self

from stoilo.core.errors import InternalError

MMAP_FILE: Final = "boinc_mmap_file"
CHANNEL_BYTES: Final = 1024
SEGMENT_BYTES: Final = 8 * CHANNEL_BYTES
HEARTBEAT: Final = b"<heartbeat/>"
"""A client's sign of life; what it measured of the application may follow."""

_TEXT_BYTES: Final = CHANNEL_BYTES - 2  # the flag before it, NUL after it
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NUMBER = r"([0-9]{1,18}(?:\.[0-9]{1,18})?(?:e[+-][0-9]{1,2})?)"
_LARGEST: Final = 1e18


class Channel(IntEnum):
    """The channels, by their place in the segment."""

    CONTROL_REQUEST = 0
    CONTROL_REPLY = 1
    GRAPHICS_REQUEST = 2
    GRAPHICS_REPLY = 3
    HEARTBEAT = 4
    APP_STATUS = 5
    TRICKLE_UP = 6
    TRICKLE_DOWN = 7


class Control(Enum):
    """What a client may ask of an application."""

    SUSPEND = "suspend"
    RESUME = "resume"
    QUIT = "quit"
    ABORT = "abort"
    REREAD = "reread_app_info"
    NETWORK = "network_available"


@dataclass(frozen=True, slots=True)
class AppStatus:
    """What an application tells about itself."""

    # processor time of the task, earlier starts included, s
    current_cpu_time: float = 0.0
    checkpoint_cpu_time: float = 0.0  # the same at the last checkpoint, s
    fraction_done: float = 0.0  # 0 to 1
    other_pid: int = 0  # a process of the task that is not below this one, 0: none


class Segment:
    """A mapped segment; either side's. Use as a context manager or `close` it."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def put(self, channel: Channel, text: bytes) -> bool:
        """Send `text`; False when the last message has not been read yet.

        Raises:
            ValueError: `text` is longer than a channel holds, or has a NUL in it.
        """
        if len(text) > _TEXT_BYTES or b"\0" in text:
            raise ValueError("the message does not fit")
        start = channel * CHANNEL_BYTES
        if self._memory[start]:
            return False
        self._memory[start + 1 : start + 2 + len(text)] = text + b"\0"
        self._memory[start] = 1  # last: the other side looks at this byte alone
        return True

    def replace(self, channel: Channel, text: bytes) -> None:
        """Send `text` in place of whatever has not been read yet: a last word."""
        self.take(channel)
        self.put(channel, text)

    def take(self, channel: Channel) -> bytes | None:
        """Return the message that waits, None when there is none."""
        start = channel * CHANNEL_BYTES
        if not self._memory[start]:
            return None
        message = bytes(self._memory[start + 1 : start + CHANNEL_BYTES])
        self._memory[start] = 0
        return message.partition(b"\0")[0]

    def close(self) -> None:
        """Unmap it."""
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()


def open_segment(path: Path) -> Segment | None:
    """Map the segment at `path`; None when there is no file.

    Raises:
        InternalError: STO-F038 it is a link, no plain file, somebody else's, or of another
            size than a client makes.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused("it is a link or cannot be opened") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise _refused("it is no plain file of this user")
        if status.st_size != SEGMENT_BYTES:
            raise _refused(f"it is not {SEGMENT_BYTES} bytes long")
        return Segment(mmap.mmap(descriptor, SEGMENT_BYTES))
    except (OSError, ValueError) as error:
        raise _refused("it cannot be mapped") from error
    finally:
        os.close(descriptor)


def parse_control(text: bytes) -> frozenset[Control]:
    """Return what a control message asks for; unknown words ask for nothing."""
    return frozenset(one for one in Control if f"<{one.value}/>".encode() in text)


def parse_status(text: bytes) -> AppStatus | None:
    """Return what an application says (hostile), None when it is not all there."""
    current = _number(text, "current_cpu_time")
    checkpoint = _number(text, "checkpoint_cpu_time")
    if current is None or checkpoint is None:
        return None
    done = _number(text, "fraction_done") or 0.0
    pid = _number(text, "other_pid") or 0.0
    return AppStatus(current, checkpoint, min(done, 1.0), int(pid))


def render_control(*wanted: Control) -> bytes:
    """Return a control message."""
    return "".join(f"<{one.value}/>" for one in wanted).encode()


def render_status(status: AppStatus) -> bytes:
    """Return the status in the order and form of BOINC's own library."""
    words = (
        f"<current_cpu_time>{status.current_cpu_time:e}</current_cpu_time>\n"
        f"<checkpoint_cpu_time>{status.checkpoint_cpu_time:e}</checkpoint_cpu_time>\n"
        f"<fraction_done>{status.fraction_done:e}</fraction_done>\n"
    )
    other = f"<other_pid>{status.other_pid}</other_pid>\n" if status.other_pid else ""
    return (words + other).encode()


def _number(text: bytes, tag: str) -> float | None:
    """Return an element's number from 0 to 10^18, None when it is none."""
    match = re.search(rf"<{tag}>\s*{_NUMBER}\s*</{tag}>".encode(), text)
    value = float(match[1]) if match else -1.0
    return value if 0.0 <= value <= _LARGEST else None


def _refused(reason: str) -> InternalError:
    return InternalError(
        "STO-F038",
        f"{MMAP_FILE} cannot be used: {reason}",
        hint="a BOINC client makes it; restart the client if it stays so",
    )
