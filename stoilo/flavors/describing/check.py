"""The check of a described library against what is installed: `check_library`.

It is asked where a flavor is built and in CI, so that a volunteer never finds out that a
name vanished, that a library imports or opens something when it is first used, or that one
of its functions does more than compute. The library runs in a child (`probe`) of the given
interpreter: what ends that child is a finding.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from stoilo.core.errors import InternalError
from stoilo.core.libraries import Library, is_described
from stoilo.flavors.describing.dangers import Danger
from stoilo.flavors.describing.probe import (
    PLACE_BYTES,
    Answer,
    Asked,
    Progress,
    Question,
)
from stoilo.flavors.describing.read_list import find_unread, parse_read_list
from stoilo.flavors.describing.source_scan import Finding
from stoilo.sandbox.process.supervisor import zygote_environment

PROBE_S = 900.0
"""How long one probe of a library may take, s."""

_MOST_CRASHES = 4
"""After so many calls that ended the child, no more are looked for without a budget."""

_STUCK_S = 5.0
"""How long one call may be silent where there is a budget, s."""


class Fault(msgspec.Struct, frozen=True):
    """One reason not to build with a library."""

    code: str
    message: str
    hint: str
    places: tuple[str, ...] = ()  # ``file:line`` of library source


class Report(msgspec.Struct, frozen=True):
    """What a check found; sound where there are no faults."""

    library: str  # import name
    versions: str  # that the file describes
    version: str  # that is installed, empty for none
    faults: tuple[Fault, ...]
    calls: int = 0  # that the walk tried
    complete: bool = True  # the walk came to its end within its budget
    notes: tuple[str, ...] = ()  # what ended calls with a budget, and is no fault
    dangers: tuple[Danger, ...] = ()  # all that the scan found, read or not

    @property
    def findings(self) -> list[Finding]:
        """Return the dangers as lines of a read list."""
        return [*map(as_finding, self.dangers)]


def check_library(
    library: Library,
    read: str | None = "",
    *,
    python: Path | None = None,
    paths: Sequence[Path] = (),
    timeout_s: float = PROBE_S,
    deep: int = 2,
    budget_s: float | None = None,
) -> Report:
    """Compare a library's file with the package that an interpreter has.

    With a budget, two things are noted and are no fault: a call that does not come back, and
    a native crash once arguments were tried that are not of the library's kind
    (`samples.library_samples` are): they may have spoiled memory calls before. A crash at the
    import, while the level is prepared, at a call without arguments or with honest ones
    stays one: all names are tried with those before any is with others.

    Args:
        library: its parsed file.
        read: the text of its read list (`stoilo.flavors.describing.read_list`); None
            where it is known that it was read, as for a shipped library.
        python: the interpreter; this one by default. It must have stoilo, or `paths` do.
        paths: folders that it finds packages in, before its own.
        timeout_s: how long one probe may take, s.
        deep: how many calls deep to walk.
        budget_s: after how many seconds nothing more is called; None: after all is tried.

    Raises:
        InternalError: ``STO-F011``, the child does not start; ``STO-P001``, its `versions`
            cannot be read.
        UsageError: ``STO-U004``, the read list is broken.
    """
    reasons = parse_read_list(read or "")
    child = _Child(python, search_path(paths), timeout_s, budget_s)
    question = Question(library, 0, deep, scans=read is not None)
    answer, faults = child.probe(question)
    notes = tuple(child.notes)
    if answer is None:
        head = (library.name, library.versions, "", tuple(faults))
        return Report(*head, complete=False, notes=notes)
    found = [as_finding(danger) for danger in answer.dangers]
    unread = set(find_unread(found, reasons)) if read is not None else set()
    faults = [
        *_version_faults(library, answer.version),
        *(_misfit(text) for text in answer.faults),
        *faults,
        *map(_asked_fault, answer.asked),
        *map(_leak_fault, answer.leaks),
        *(_unread_fault(one) for one in answer.dangers if as_finding(one) in unread),
    ]
    return Report(
        *(library.name, library.versions, answer.version, tuple(faults)),
        calls=answer.calls,
        complete=answer.complete,
        notes=notes,
        dangers=answer.dangers,
    )


def as_finding(danger: Danger) -> Finding:
    """Return a danger as the line of a read list."""
    return Finding(danger.name, danger.patterns, danger.digest)


def try_first_calls(
    library: Library, paths: Sequence[Path] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what first calls of all that `library` opens import late, and what failed."""
    child = _Child(None, search_path(paths), PROBE_S, None)
    answer, ended = child.probe(Question(library, 0, deep=1, scans=False))
    failed = tuple(fault.message for fault in ended)
    if answer is None:
        return (), failed
    late = (one.what for one in answer.asked if one.event == "import")
    return tuple(late), failed + answer.faults


# The faults ----------------------------------------------------------------------------


def _misfit(text: str) -> Fault:
    return Fault("STO-P001", text, "correct the file, or install what it describes")


def _version_faults(library: Library, version: str) -> Iterator[Fault]:
    if not version:
        yield _misfit(f"{library.distribution} is not installed")
    elif not is_described(library, version):
        yield _misfit(
            f"{library.distribution} {version} is installed, "
            f"the file describes {library.versions}"
        )


def _asked_fault(asked: Asked) -> Fault:
    if asked.event == "import":
        return Fault(
            "STO-S025",
            f"{asked.place} imports {asked.what} when it is used",
            f'add "{asked.what}" to preload, or withhold what imports it',
        )
    what = "opens" if asked.event == "open" else f"asks for {asked.event}:"
    return Fault(
        "STO-F009",
        f"{asked.place} {what} {asked.what}",
        "withhold it, or preload what it needs: a run opens and starts nothing",
    )


def _leak_fault(leak: str) -> Fault:
    return Fault(
        "STO-F009",
        f"{leak.removeprefix('LEAK ')} leads to more than values",
        "withhold the name, or close the class in [members]",
    )


def _unread_fault(danger: Danger) -> Fault:
    return Fault(
        "STO-F009",
        f"nobody has read {danger.name} ({'; '.join(danger.patterns)})",
        "withhold what leads there, or give it a reason in the read list",
        danger.places,
    )


def _signal(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _ended(code: int, place: str) -> Fault:
    return Fault(
        "STO-S020",
        f"native code ended the process ({_signal(code)}) at {place or 'the start'}",
        "withhold it: it would end a volunteer's run",
    )


# The child -----------------------------------------------------------------------------


@dataclass
class _Child:
    """The processes in which one library is tried, one after the other.

    Attributes:
        python: the interpreter; None for this one.
        environment: beside a zygote's.
        timeout_s: how long each may take.
        budget_s: how long all may walk; None for without end.
        notes: what ended one and is no fault.
    """

    python: Path | None
    environment: dict[str, str]
    timeout_s: float
    budget_s: float | None
    notes: list[str] = field(default_factory=list)

    def probe(self, question: Question) -> tuple[Answer | None, list[Fault]]:
        """Return what a child says, and what ended those before it, which it skips."""
        faults: dict[str, Fault] = {}
        skipped: list[str] = []
        begin = time.monotonic()
        while True:
            with tempfile.TemporaryFile() as notes:
                asked = self._question(question, notes.fileno(), skipped, begin)
                answer, end = self._ask(asked)
                place, question = _read_notes(notes.fileno(), question)
            if end is None:
                return answer, [*faults.values()]
            walking = place.startswith(f"{question.library.name}.")
            if (
                self.budget_s is None
                or not walking
                or (end and question.before.careful)
            ):
                faults[place] = (
                    _ended(end, place) if end else _too_long(place, self.timeout_s)
                )
            else:
                self.notes.append(f"{place} {_why(end)}")
            late = not end and self.budget_s is None
            again = place in skipped or not walking
            if again or late or len(faults) == _MOST_CRASHES:
                return None, [*faults.values()]
            skipped.append(place)

    def _question(
        self, question: Question, notes: int, skipped: list[str], begin: float
    ) -> Question:
        left_s = self.budget_s and max(0.0, begin + self.budget_s - time.monotonic())
        return msgspec.structs.replace(
            question, place=notes, skipped=tuple(skipped), budget_s=left_s
        )

    def _ask(self, question: Question) -> tuple[Answer | None, int | None]:
        """Return the child's answer, or its end: an exit code, 0 for too late."""
        command = [str(self.python or sys.executable), "-s", "-P", "-m", _PROBE]
        with (
            tempfile.TemporaryDirectory() as folder,
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as answer,
            tempfile.TemporaryFile() as said,
        ):
            given.write(msgspec.json.encode(question))
            given.seek(0)
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=answer,
                stderr=said,
                cwd=folder,
                env=zygote_environment() | self.environment,
                pass_fds=(question.place,),
            )
            code = self._await(process, question)
            said.seek(0)
            answer.seek(0)
            errors, data = said.read(), answer.read()
        if code is None:
            return None, 0
        if code > 0:  # not the library's doing: it is caught
            last = errors.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise InternalError("STO-F011", f"the check broke: {' '.join(last)[:300]}")
        if code or not data:
            return None, code or 1
        return msgspec.json.decode(data, type=Answer), None

    def _await(
        self, process: subprocess.Popen[bytes], question: Question
    ) -> int | None:
        """Return the exit code; None for a child that was killed: it took too long."""
        end = time.monotonic() + self.timeout_s
        within = f"{question.library.name}.".encode()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(0.1)
            silent_s = time.time() - os.fstat(question.place).st_mtime
            stuck = self.budget_s is not None and silent_s > _STUCK_S
            walking = os.pread(question.place, len(within), 0) == within
            if time.monotonic() > end or (stuck and walking):
                process.kill()
                process.wait()
                return None


def _read_notes(notes: int, question: Question) -> tuple[str, Question]:
    """Return where a child was, and the question that is left."""
    place = os.pread(notes, PLACE_BYTES, 0).decode("utf-8", "replace").rstrip()
    data = os.pread(notes, os.fstat(notes).st_size, PLACE_BYTES).partition(b"\n")[0]
    if not data:
        return place, question
    before = msgspec.json.decode(data, type=Progress)
    return place, msgspec.structs.replace(question, before=before)


def _why(code: int) -> str:
    if not code:
        return f"did not come back in {_STUCK_S:.0f} s"
    return f"ended the process ({_signal(code)})"


def _too_long(place: str, timeout_s: float) -> Fault:
    message = f"the check came no further than {place} in {timeout_s:.0f} s"
    return Fault("STO-S011", message, "withhold what does not end")


def search_path(paths: Iterable[Path]) -> dict[str, str]:
    """Return the environment that lets a child find packages in `paths` first."""
    text = os.pathsep.join(map(str, paths))
    return {"PYTHONPATH": text} if text else {}


_PROBE = "stoilo.flavors.describing.probe"


def version_range(version: str) -> str:
    """Return the minor releases of `version`: ``>=1.17,<1.18``."""
    numbers = [*(int(one) for one in version.split(".")[:2] if one.isdigit()), 0, 0]
    major, minor = numbers[:2]
    return f">={major}.{minor},<{major}.{minor + 1}"
