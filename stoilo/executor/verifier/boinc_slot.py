"""The application's side of a BOINC slot: what a client laid out, and how a task ends there.

``init_data.xml`` is not strict XML (preferences are copied in as a server wrote them) and names
the account's key, so only what is needed is read. Inputs are found by their open names: plain
files, or BOINC's text files that name one of the project's directory.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from stoilo.core.errors import InternalError, TrustError
from stoilo.core.files import write_durably
from stoilo.core.limits import BOUNDS
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.installation import HOME_NAME, disk_trouble, is_slot
from stoilo.executor.verifier.optin import ServerPreferences

INIT_FILE: Final = "init_data.xml"
MAX_INIT_BYTES: Final = 256 * 1024
CHECKPOINT_PERIOD_S: Final = 300.0
"""Where the client says nothing: its own default, s."""
MOST_S: Final = 1e9
MOST_PID: Final = 1 << 22
GIGABYTE: Final = 10**9

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}")


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """What ``init_data.xml`` says; hostile where a server wrote it."""

    app: str  # BOINC app under which the task came
    workunit: str  # workunit name, ``<task id>_<attempt>``
    result: str  # result name
    # what the project's preferences ask for; only lowers
    preferences: ServerPreferences = field(default_factory=ServerPreferences)
    # what BOINC may use of the disk by its user's preference; None: unsaid
    disk_bytes: int | None = None
    client_pid: int = 0  # of the client, 0: unsaid
    cpu_s: float = 0.0  # processor time of earlier starts up to the last checkpoint, s
    # least time between two checkpoints, s
    checkpoint_period_s: float = CHECKPOINT_PERIOD_S
    # what `fraction_done` is at the start of this task, 0 to 1
    fraction_start: float = 0.0
    fraction_end: float = 1.0  # what it is at its end
    # what the workunit may take of the disk; None: unsaid
    slot_bytes: int | None = None


def parse_init_data(data: bytes) -> SlotInfo:
    """Return what the client says of the task; raises ``STO-F038``.

    BOINC copies preferences into the file as they are, so they are cut out first: they
    may hold any text, also the names of other elements.
    """
    text = data.decode("utf-8", "replace")
    before, _, rest = text.partition("<project_preferences>")
    wishes, _, after = rest.rpartition("</project_preferences>")
    outer = before + after
    start = _within(outer, "fraction_done_start", 0.0, 1.0)
    end = max(start, _within(outer, "fraction_done_end", 1.0, 1.0))
    return SlotInfo(
        app=_name(outer, "app_name"),
        workunit=_name(outer, "wu_name"),
        result=_name(outer, "result_name"),
        preferences=_preferences(wishes),
        disk_bytes=_disk_bytes(outer),
        client_pid=int(_within(outer, "client_pid", 0, MOST_PID)),
        cpu_s=_within(outer, "wu_cpu_time", 0.0, MOST_S),
        checkpoint_period_s=_within(
            outer, "checkpoint_period", CHECKPOINT_PERIOD_S, MOST_S
        ),
        fraction_start=start,
        fraction_end=end,
        slot_bytes=int(_within(outer, "rsc_disk_bound", 0, GIGABYTE**2)) or None,
    )


def _text(document: str, tag: str) -> str:
    """Return the text of the first element `tag`, empty if there is none."""
    start, end = f"<{tag}>", f"</{tag}>"
    _, found, rest = document.partition(start)
    text, closed, _ = rest.partition(end)
    return text.strip() if found and closed else ""


def _name(document: str, tag: str) -> str:
    """Return a BOINC name; raises ``STO-F038``."""
    name = _text(document, tag)
    if not _NAME.fullmatch(name):
        raise TrustError(
            "STO-F038",
            f"the slot cannot be used: {INIT_FILE} has no usable <{tag}>",
            hint="a BOINC client starts the launcher in a slot; nothing else does",
        )
    return name


def _preferences(wishes: str) -> ServerPreferences:
    """Return what the project's page asks of this host; absent: nothing less."""
    return ServerPreferences(
        max_level=_text(wishes, "max_level") or ServerPreferences().max_level,
        require_review=_text(wishes, "require_review") not in {"", "0"},
        require_public_source=_text(wishes, "require_public_source") not in {"", "0"},
    )


def _disk_bytes(document: str) -> int | None:
    """Return the least of what BOINC's preferences leave it of the disk, bytes."""
    total = read_number(document, "d_total")
    most = read_number(document, "disk_max_used_gb")
    percent = read_number(document, "disk_max_used_pct")
    bounds = [most * GIGABYTE] if most else []
    if percent is not None and total:
        bounds.append(total * min(percent, 100.0) / 100)
    return int(min(bounds)) if bounds else None


def read_number(document: str, tag: str) -> float | None:
    """Return an element's number from 0 to 10^18, None when it is none."""
    text = _text(document, tag)
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?(e[+-][0-9]{1,2})?", text):
        return None
    value = float(text)
    return value if value <= GIGABYTE**2 else None


def _within(document: str, tag: str, default: float, most: float) -> float:
    value = read_number(document, tag)
    return default if value is None or value > most else value


FINISH_FILE: Final = "boinc_finish_called"
TEMPORARY_EXIT_FILE: Final = "boinc_temporary_exit"
BROKEN_RUNS_FILE: Final = "broken_runs"
MAX_LINK_BYTES: Final = 4096
MOST_DELAY_S: Final = 24 * 3600
RESULT_BEGINS: Final = (b'{"format":"stoilo-result/1"', b'{"format":"stoilo-result/2"')
"""How every result file of `stoilo.executor.verifier.workunit` begins."""

_LINK = re.compile(rb"<soft_link>([^<>\0\n]{1,4000})</soft_link>\s*")
_RESULT_SUFFIX = re.compile(r"_[A-Za-z0-9_]{1,64}")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot: its real path, what the client says of it, and its input files."""

    directory: Path
    info: SlotInfo
    files: tuple[tuple[str, Path], ...]

    def file(self, open_name: str) -> Path | None:
        """Return the file behind an open name, None when the slot lacks it."""
        return next((path for name, path in self.files if name == open_name), None)


def read_slot(directory: Path) -> Slot:
    """Return the slot that `directory` is.

    Raises:
        TrustError: STO-F038 when it is none, or names files outside of its place.
    """
    real = directory.resolve()
    if not is_slot(real):
        raise _refused("this directory is not a slot of a BOINC client")
    info = parse_init_data(_read_plain(real / INIT_FILE, MAX_INIT_BYTES))
    names = [
        workunit.ADMISSION,
        workunit.PROOF,
        workunit.TASK_MODULE,
        workunit.ARGUMENTS,
        workunit.RELEASE,
        workunit.REVOCATIONS,
        workunit.FLAVOR,
        *(workunit.blob_name(index) for index in range(BOUNDS.blobs_per_task)),
    ]
    files = [
        (name, _resolve(real, name)) for name in names if os.path.lexists(real / name)
    ]
    return Slot(real, info, tuple(files))


@contextmanager
def hold_slot(slot: Slot) -> Iterator[None]:
    """Keep every other verifier out of the slot while the block lasts.

    A client that was killed may be back before its task has noticed, and starts it again.

    Raises:
        InternalError: STO-F038 another one is in it.
    """
    descriptor = os.open(slot.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InternalError(
                "STO-F038",
                "this task already runs in this slot",
                hint="BOINC tries again soon",
            ) from error
        yield
    finally:
        os.close(descriptor)


def finish(slot: Slot, data: bytes) -> None:
    """Write the result and then, both durable, the file that tells BOINC so.

    BOINC looks for a request to start again before it looks for the finish: one that an
    earlier start left behind would undo it.

    Raises:
        InternalError: STO-X008 when the disk refuses.
        TrustError: STO-F038 when the result's place is none of a result of this task.
    """
    target = _result_place(slot)
    with suppress(OSError):
        (slot.directory / TEMPORARY_EXIT_FILE).unlink(missing_ok=True)
    write_in_slot(slot.directory / "result.part", target, data)
    write_in_slot(slot.directory / "finish.part", slot.directory / FINISH_FILE, b"0\n")


def put_off(slot: Slot, delay_s: int, reason: str) -> None:
    """Tell BOINC to start the task again after `delay_s`, s; raises ``STO-X008``."""
    words = " ".join(reason.split())[:200]
    text = f"{min(delay_s, MOST_DELAY_S)}\n{words}\n"
    path = slot.directory / TEMPORARY_EXIT_FILE
    write_in_slot(slot.directory / "exit.part", path, text.encode())


def count_broken_run(slot: Slot) -> int:
    """Note that a run broke, and return how many of this task's have.

    The request to start again is taken away: the caller may not make another. A disk that
    refuses counts as the first time.
    """
    try:
        (slot.directory / TEMPORARY_EXIT_FILE).unlink(missing_ok=True)
        with (slot.directory / BROKEN_RUNS_FILE).open("ab") as file:
            file.write(b"x")
            return file.tell()
    except OSError:
        return 1


def render_soft_link(target: str) -> bytes:
    """Return BOINC's soft-link file to `target`, a path relative to the slot."""
    return f"<soft_link>{target}</soft_link>\n".encode()


def _resolve(slot: Path, name: str) -> Path:
    """Return the file that `name` stands for: itself, or what its link names."""
    path = slot / name
    target = _link_target(path)
    if target is None:
        return path
    data = slot.parent.parent
    real = Path(os.path.realpath(slot / target))
    if not real.is_relative_to(data) or real.is_relative_to(data / HOME_NAME):
        raise _refused(f"{name} leads outside of BOINC's own directories")
    return real


def _result_place(slot: Slot) -> Path:
    """Return where the result belongs: in the slot, or by its own name in a project.

    A server says where the link leads, and what it names is written: a place anywhere in
    BOINC's directories could be another project's program, or a file that makes the
    client run unsigned ones (``app_info.xml``).
    """
    own = slot.directory / workunit.RESULT
    target = _resolve(slot.directory, workunit.RESULT) if os.path.lexists(own) else own
    if target == own:
        return own
    projects = slot.directory.parent.parent / "projects"
    suffix = target.name.removeprefix(slot.info.result)
    if (
        target.parent.parent != projects
        or suffix == target.name
        or not _RESULT_SUFFIX.fullmatch(suffix)
        or not _is_free(target)
    ):
        raise _refused("the result's link leads to what is no result of this task")
    return target


def _is_free(target: Path) -> bool:
    try:
        descriptor = os.open(target, _FLAGS)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        begin = os.read(descriptor, len(RESULT_BEGINS[0]))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return begin in {b"", *RESULT_BEGINS}


def _link_target(path: Path) -> str | None:
    """Return what a soft-link file names, None for a file that is none."""
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_LINK_BYTES:
            return None
        match = _LINK.fullmatch(file.read(MAX_LINK_BYTES + 1))
    return os.fsdecode(match[1]) if match else None


def _read_plain(path: Path, most: int) -> bytes:
    """Return a small plain file of the slot; raises ``STO-F038``."""
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise _refused(f"{path.name} is too large")
    return data


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file of the slot; raises ``STO-F038`` for links and all else."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise _refused(f"{path.name} is a link or cannot be read") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(f"{path.name} is not a plain file")
    return os.fdopen(descriptor, "rb")


def write_in_slot(part: Path, target: Path, data: bytes) -> None:
    """Give `target` the content `data`, durably, by way of `part`.

    Raises:
        InternalError: STO-X008.
    """
    with disk_trouble(f"{target.name} cannot be written"):
        # By way of the slot: the target may lie in the project's directory, where a
        # half-written file of another name would stay for ever.
        write_durably(target, data, mode=0o600, draft=part)


def _refused(reason: str) -> TrustError:
    return TrustError(
        "STO-F038",
        f"the slot cannot be used: {reason}",
        hint="a BOINC client starts the launcher in a slot; nothing else does",
    )
