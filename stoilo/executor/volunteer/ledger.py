"""What a volunteer must not lose: its identity, its copies, its finished results.

Everything is a small file replaced atomically and durably, one directory per copy, so that
kill -9 between any two steps leaves a state from which the next start goes on:

    host.json                 who we are to the project
    project.json              what it said: key, account, preferences, messages
    copies/<result>/copy.json what was assigned, and how far it is
    copies/<result>/result    the finished result file, complete or absent
    files/<digest>            downloaded inputs; sticky ones stay, under a cap
    history.jsonl             what ran here lately, for its person; may be lost

The directory belongs to one process at a time (`lock`).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from stoilo.core.boinc.messages import FileInfo, ResultState, UserInfo
from stoilo.core.errors import InternalError, UsageError
from stoilo.core.files import sync_directory
from stoilo.executor.verifier.installation import disk_trouble, replace_file
from stoilo.executor.volunteer.history import PastRun, note_run


class Phase(StrEnum):
    """How far a copy is."""

    ASSIGNED = "assigned"  # to be downloaded and run
    FINISHED = "finished"  # the result file is here, to be uploaded
    UPLOADED = "uploaded"  # to be reported as a success
    FAILED = "failed"  # to be reported as a failure


class FileRecord(msgspec.Struct, frozen=True):
    """One input file of a copy, and the name under which the task opens it."""

    open_name: str
    info: FileInfo


class ResultRecord(msgspec.Struct, frozen=True):
    """One copy that the project gave to this host."""

    result: str  # BOINC result name
    workunit: str  # workunit name
    app: str  # BOINC app
    deadline: int  # s since 1970
    files: tuple[FileRecord, ...]  # inputs
    upload_name: str  # name of the output file
    upload_url: str  # where it goes
    upload_max: int  # largest output file, bytes
    phase: Phase = Phase.ASSIGNED  # how far it is
    state: int = 0  # BOINC client state to report when failed
    exit_status: int = 0  # BOINC exit code to report when failed
    code: str = ""  # our code of the failure
    tries: int = 0  # runs that failed for reasons of this machine
    elapsed_s: float = 0.0  # what the run took, s


class HostRecord(msgspec.Struct, frozen=True):
    """Who this state directory is to its project."""

    project: str  # master URL
    cpid: str  # our own identity, 32 hex digits
    host_id: int = 0  # as the project numbered us, 0 before
    rpc_seqno: int = 0  # number of the last request
    scheduler: str = ""  # URL found on the master page, empty before


NO_HOST: Final = HostRecord("", "")
"""Before the first call."""


class ProjectMemory(msgspec.Struct, frozen=True):
    """What is kept of a project's replies; losing it costs that memory alone."""

    code_sign_key: str = ""  # BOINC's text of it, empty before the first
    user: UserInfo | None = None  # what the project last said of the account
    preferences: str = ""  # XML elements of the account's preferences at this project
    # the project's last messages, the oldest first; hostile text
    messages: tuple[str, ...] = ()


MEMORY_FILE: Final = "project.json"
MAX_MEMORY_BYTES: Final = 256 * 1024
MAX_RECORD_BYTES: Final = 4 * 1024 * 1024

Record = TypeVar("Record")


def load_record(path: Path, kind: type[Record], absent: Record | None = None) -> Record:
    """Return the record in a file of the state directory; `absent` without the file.

    Raises:
        InternalError: STO-X008 it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_RECORD_BYTES), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        if isinstance(error, FileNotFoundError) and absent is not None:
            return absent
        raise InternalError(
            "STO-X008",
            f"{path.name} of the state directory cannot be read",
            hint="remove that file, or the state directory to start as a new host",
        ) from error


def recall(path: Path, kind: type[Record], before: Record) -> Record:
    """Return the record in a file that may be lost; `before` where none can be read."""
    try:
        return load_record(path, kind, before)
    except InternalError:
        return before


def save_record(path: Path, record: object) -> None:
    """Keep a record in a file of the state directory, durably; raises ``STO-X008``."""
    replace_file(path, msgspec.json.encode(record))


def read_memory(directory: Path) -> ProjectMemory:
    """Return what is remembered of a project; raises ``STO-X008``."""
    return load_record(directory / MEMORY_FILE, ProjectMemory, ProjectMemory())


def follow_project(directory: Path, project: str) -> None:
    """Let a state directory follow its project to a new master URL.

    Only for who knows that it is the same project: `stoilo up` and its own volunteers.
    Safe to repeat after a crash: copies first, the host's record last.

    Raises:
        InternalError: ``STO-X008``.
    """
    path = directory / "host.json"
    host = load_record(path, HostRecord, NO_HOST)
    if host.project in {project, ""}:
        return

    def moved(url: str) -> str:
        return project + url.removeprefix(host.project)

    for place in sorted((directory / "copies").glob("*/copy.json")):
        copy = load_record(place, ResultRecord)
        if copy.upload_url.startswith(project):  # before a crash
            continue
        files = tuple(
            FileRecord(file.open_name, replace(file.info, url=moved(file.info.url)))
            for file in copy.files
        )
        copy = msgspec.structs.replace(
            copy, files=files, upload_url=moved(copy.upload_url)
        )
        save_record(place, copy)
    host = msgspec.structs.replace(host, project=project, scheduler="")
    save_record(path, host)


class Ledger:
    """The state directory of one volunteer process."""

    def __init__(self, directory: Path, project: str) -> None:
        """Open or make the directory for this project.

        Raises:
            UsageError: ``STO-X007`` when another process has it, ``STO-X007`` when it
                belongs to another project.
            InternalError: ``STO-X008``.
        """
        self._directory = directory
        self._copies = directory / "copies"
        self.files = directory / "files"
        with disk_trouble("the state directory cannot be written"):
            for folder in (directory, self._copies, self.files):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _take_lock(directory / "lock")
        try:
            self.host = self._load_host(project)
            self.memory = read_memory(directory)
            self._known = {record.result: record for record in self._load_copies()}
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def save_host(self, host: HostRecord) -> None:
        """Remember who we are, durably."""
        save_record(self._directory / "host.json", host)
        self.host = host

    def save_memory(self, memory: ProjectMemory) -> None:
        """Remember what the project said, durably."""
        if len(msgspec.json.encode(memory)) > MAX_MEMORY_BYTES:
            # The key is worth more than their words.
            memory = ProjectMemory(code_sign_key=memory.code_sign_key)
        if memory != self.memory:
            save_record(self._directory / MEMORY_FILE, memory)
            self.memory = memory

    def copies(self) -> tuple[ResultRecord, ...]:
        """Return every copy, in the order of their deadlines."""
        return tuple(sorted(self._known.values(), key=lambda copy: copy.deadline))

    def find(self, result: str) -> ResultRecord | None:
        """Return one copy."""
        return self._known.get(result)

    @property
    def directory(self) -> Path:
        """The state directory."""
        return self._directory

    def sticky_files(self) -> tuple[str, ...]:
        """Return the names of the inputs that are kept after their task."""
        kept = [path for path in self.files.iterdir() if path.suffix != ".part"]
        return tuple(sorted(path.name for path in kept if _is_sticky(path)))

    def drop_files(self, names: Iterable[str]) -> None:
        """Remove inputs that the project will not name again, unless a copy needs one."""
        needed = self._needed()
        for name in set(names) - needed:
            (self.files / name).unlink(missing_ok=True)

    def add(self, record: ResultRecord) -> None:
        """Remember a new copy, durably.

        One that is known stays as far as it is; its deadline is the newest told.
        """
        known = self._known.get(record.result)
        if known is not None:
            if known.deadline != record.deadline:
                self.save(msgspec.structs.replace(known, deadline=record.deadline))
            return
        made = self._directory / f"new-{secrets.token_hex(8)}"
        with disk_trouble("the state directory cannot be written"):
            made.mkdir(mode=0o700)
            save_record(made / "copy.json", record)
            # The name appears when all of it is on the disk: a crash leaves a `new-` to
            # sweep.
            made.replace(self._copies / record.result)
            sync_directory(self._copies)
        self._known[record.result] = record

    def save(self, record: ResultRecord) -> None:
        """Remember how far a known copy is, durably."""
        folder = self._copies / record.result
        save_record(folder / "copy.json", record)
        self._known[record.result] = record

    def fail(
        self, record: ResultRecord, state: int, exit_status: int, code: str
    ) -> None:
        """Note, durably, that a copy is to be reported as failed."""
        fields = {"state": state, "exit_status": exit_status, "code": code}
        self.save(msgspec.structs.replace(record, phase=Phase.FAILED, **fields))
        how = "aborted" if state == ResultState.ABORTED else "failed"
        self.note(PastRun(int(time.time()), record.workunit, record.app, how, code))

    def note(self, run: PastRun) -> None:
        """Add a row to the history."""
        note_run(self._directory, run)

    def store_result(self, record: ResultRecord, data: bytes) -> None:
        """Keep a finished result file, durably, then note the copy as finished."""
        replace_file(self.result_path(record.result), data)
        self.save(msgspec.structs.replace(record, phase=Phase.FINISHED))

    def result_path(self, result: str) -> Path:
        """Return where a copy's result file lies."""
        return self._copies / result / "result"

    def remove(self, result: str) -> None:
        """Forget a copy: the project has taken note of it or does not want it."""
        if self._known.pop(result, None) is None:
            return
        # Renamed first, so that a crash leaves no result without its record.
        trash = self._directory / f"old-{secrets.token_hex(8)}"
        with disk_trouble("the state directory cannot be written"):
            (self._copies / result).replace(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def trim_files(self, cap_bytes: int) -> None:
        """Remove inputs that no copy needs: at once, or sticky ones beyond the cap.

        The least recently used go first; what a copy needs always stays.
        """
        needed = self._needed()
        idle = [
            path
            for path in self.files.iterdir()
            if path.name.removesuffix(".part") not in needed
        ]
        sticky = [path for path in idle if path.suffix != ".part" and _is_sticky(path)]
        for path in set(idle) - set(sticky):
            path.unlink(missing_ok=True)
        sticky.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        total = 0
        for path in sticky:
            total += path.stat().st_size
            if total > cap_bytes:
                path.unlink(missing_ok=True)

    def _needed(self) -> set[str]:
        files = (file for copy in self._known.values() for file in copy.files)
        return {file.info.name for file in files}

    def _load_host(self, project: str) -> HostRecord:
        path = self._directory / "host.json"
        host = load_record(path, HostRecord, NO_HOST)
        if host == NO_HOST:
            host = HostRecord(project=project, cpid=secrets.token_hex(16))
            save_record(path, host)
        if host.project != project:
            raise UsageError(
                "STO-X007", "this state directory belongs to another project"
            )
        return host

    def _load_copies(self) -> Iterator[ResultRecord]:
        """Yield the copies on the disk; left-overs of a crash are removed."""
        for junk in (*self._directory.glob("new-*"), *self._directory.glob("old-*")):
            shutil.rmtree(junk, ignore_errors=True)
        for folder in self._copies.iterdir():
            record = load_record(folder / "copy.json", ResultRecord)
            # Killed between storing the result and noting it: the work is done.
            if record.phase is Phase.ASSIGNED and (folder / "result").exists():
                record = msgspec.structs.replace(record, phase=Phase.FINISHED)
            yield record


def _take_lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UsageError("STO-X007", "the state directory is in use") from error
    return descriptor


def mark_sticky(path: Path) -> None:
    """Mark a cached file as one to keep (its mode says so: no extra file to lose)."""
    path.chmod(0o400)


def touch(paths: Iterable[Path]) -> None:
    """Note that cached files were used now."""
    for path in paths:
        os.utime(path)


def _is_sticky(path: Path) -> bool:
    return path.stat().st_mode & 0o200 == 0
