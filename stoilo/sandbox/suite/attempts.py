"""What the self-test attempts in a process that one mechanism has closed, and the list of it.

An attempt got through unless it says False; an OSError or MemoryError means that it did not.
They are fixed programs of ours, harmless where they succeed, and run with a mechanism lifted
only in processes that never see anybody else's code.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stoilo.sandbox.kernel import calls, mechanisms
from stoilo.sandbox.kernel.mechanisms import Mechanism

_SMALL_PATIENCE_S, _PATIENCE_S, _STEP_S = 0.3, 3.0, 0.01
_NEWNS = 0x00020000
_IO_URING_SETUP = 425  # the same on every architecture
_MS_REC_PRIVATE = 0x4000 | 0x40000
_SETUID_FOR_ALL = 0o4001
_SETUID_PROGRAMS = ("mount", "umount", "chsh", "passwd", "newgrp", "fusermount3")
_PR_SET_DUMPABLE = 4
_TCP_ABI, _SCOPE_ABI = 4, 6
_PAGE = 4096
_WRITABLE_CODE = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.shmat.restype = ctypes.c_ssize_t


@dataclass(frozen=True, slots=True)
class Scene:
    """What lies outside the confined process, for it to reach."""

    folder: str  # a directory that everybody may write to
    file: str  # a file that everybody may read, of more than one byte
    private_file: str  # a file that only its owner may read
    descriptor: int  # an open descriptor of `file`, inherited
    port: int  # where a TCP listener waits on loopback
    abstract: str  # name of an abstract unix socket that listens
    shared_memory: int  # id of a System V segment
    outsider: int  # pid of a process outside
    memory_bytes: int  # one byte more than the run may map
    cpu_s: int  # processor time that the run may use, s


Attempt = Callable[[Scene], object]


def _read(path: str) -> None:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - no buffer, no seek
        file.read(1)


def _in_child(work: Callable[[], object]) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _read_environment(_scene: Scene) -> bool:
    path = f"/proc/{os.getpid()}/environ"
    return _in_child(lambda: _read(path))


def _write_file(scene: Scene) -> bool:
    path = f"{scene.folder}/made-by-{os.getpid()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)  # noqa: PTH108 - the call itself is the point
    return os.write(descriptor, b"x") == 1


def _run_program(_scene: Scene) -> bool:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {})
    return os.waitpid(pid, 0)[1] == 0


def _connect_tcp(scene: Scene) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as channel:
        channel.settimeout(_PATIENCE_S)
        channel.connect(("127.0.0.1", scene.port))


def _connect_abstract(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.connect(f"\0{scene.abstract}")


def _make_ring(_scene: Scene) -> None:
    buffer = ctypes.create_string_buffer(256)
    os.close(calls.raw_syscall(_IO_URING_SETUP, 1, ctypes.addressof(buffer)))


def _spin(scene: Scene) -> None:
    while time.process_time() < scene.cpu_s + _SMALL_PATIENCE_S:
        pass


def _lock_memory(_scene: Scene) -> bool:
    page = mmap.mmap(-1, _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return int(_LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(_PAGE))) == 0


def _become_root(_scene: Scene) -> bool:
    os.setresuid(0, 0, 0)
    return os.geteuid() == 0


def _mount_something(scene: Scene) -> None:
    calls.unshare(_NEWNS)
    calls.mount("", "/", "", _MS_REC_PRIVATE, "")
    calls.mount("none", scene.folder, "tmpfs", 0, "size=4k")


def _signal_group(_scene: Scene) -> bool:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.killpg(0, signal.SIGUSR1)
    return False  # the parent knows whether the signal arrived


def _outlive(_scene: Scene) -> None:
    parent = os.getppid()
    deadline = time.monotonic() + _PATIENCE_S
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(_STEP_S)
    time.sleep(_SMALL_PATIENCE_S)


def find_setuid_program() -> str | None:
    """Return a set-uid program of root that only prints help when asked, or None."""
    for path in (Path("/usr/bin", name) for name in _SETUID_PROGRAMS):
        try:
            status = path.stat()
        except OSError:
            continue
        if status.st_uid == 0 and status.st_mode & _SETUID_FOR_ALL == _SETUID_FOR_ALL:
            return str(path)
    return None


def _gain_privileges(_scene: Scene) -> bool:
    # The program blocks in its help text, in a pipe that is full, while its user id is read.
    program = find_setuid_program()
    if program is None:
        return False
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while os.write(writer, b"x" * _PAGE):
            pass
    except BlockingIOError:
        pass
    os.set_blocking(writer, True)
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.execv(program, [program, "--help"])  # noqa: S606 - it asks for no shell
    reached = _becomes_root(pid, Path(program).name)
    os.close(reader)  # it ends by SIGPIPE
    os.close(writer)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return reached


def _becomes_root(pid: int, program: str) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
        fields = {name: rest.split() for name, _, rest in map(_split_line, lines)}
        if fields["Name"] == [program]:
            return fields["Uid"][1] == "0"
        time.sleep(_STEP_S)
    return False


def _split_line(line: str) -> tuple[str, str, str]:
    return line.partition(":")


ATTEMPTS: dict[str, Attempt] = {
    "attach to shared memory of the machine": lambda scene: (
        int(_LIBC.shmat(scene.shared_memory, None, 0)) != -1
    ),
    "become root again": _become_root,
    "become root by a set-uid program": _gain_privileges,
    "connect to a service of this machine": _connect_tcp,
    "connect to a unix socket without a file": _connect_abstract,
    "create a file and write a byte": _write_file,
    "list a directory": lambda scene: [*os.scandir(scene.folder)],
    "live on after the parent has died": _outlive,
    "lock memory": _lock_memory,
    "make a file in memory": lambda _: os.close(os.memfd_create("x")),
    "make a socket": lambda _: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    "make an io_uring": _make_ring,
    "map memory that is writable and executable": lambda _: mmap.mmap(
        -1, _PAGE, prot=_WRITABLE_CODE
    ).close(),
    "map more memory than the run may have": lambda scene: mmap.mmap(
        -1, scene.memory_bytes
    ).close(),
    "map more memory than that in parts": lambda scene: [
        mmap.mmap(-1, scene.memory_bytes // 8) for _ in range(9)
    ],
    "mount a file system": _mount_something,
    "open one descriptor more": lambda _: os.close(os.dup(1)),
    "read a file of the host": lambda scene: _read(scene.file),
    "read a file that only root may read": lambda scene: _read(scene.private_file),
    "read a file that the parent had open": lambda scene: os.pread(
        scene.descriptor, 1, 0
    ),
    "read the process from another one of its user": _read_environment,
    "run a program of the host": _run_program,
    "signal a process outside": lambda scene: os.kill(scene.outsider, 0),
    "signal the group that the parent is in": _signal_group,
    "start a process": lambda _: _in_child(lambda: None),
    "use more processor time than the run may have": _spin,
}
"""What is attempted, in the words of the table."""


class Attempted(msgspec.Struct, frozen=True):
    """One attempt to do what a mechanism must stop."""

    mechanism: str  # whose row it belongs to
    words: str  # what was attempted
    # ``alone``, under this mechanism and what it needs, or ``jail``, in a real run
    place: str
    # Whether the same attempt succeeds without the mechanism; None where there is no such
    # run (in the whole jail, and for what was only looked at)
    control: bool | None
    reached: bool  # whether the attempt succeeded, which it must not

    @property
    def tells(self) -> bool:
        """Whether it says anything: without the mechanism it would have succeeded."""
        return self.reached or self.control is not False


def _do_nothing() -> None:
    pass


def _become_dumpable() -> None:
    # Undo what a change of uid does by itself, so that the control says something
    calls.prctl(_PR_SET_DUMPABLE, 1)


def _enter_user_namespace() -> None:
    # Give an ordinary user capabilities to lose
    if os.geteuid() != 0 or mechanisms.is_lonely_root():
        mechanisms.enter_user()


@dataclass(frozen=True, slots=True)
class Trial:
    """One attempt under one mechanism alone."""

    name: str  # the mechanism, or ``namespace_…``
    words: str  # what is done inside, one of `ATTEMPTS`
    needs: tuple[Mechanism, ...] = ()  # mechanisms applied in the control as well
    # Done just before the mechanism is applied, in the control too
    before: Callable[[], None] = _do_nothing
    landlock_abi: int = 0  # the least ABI that stops it, 0 for all
    # Whether only a run with a uid of its own is kept from it: an ordinary user shares his
    # with his other programs
    own_uid: bool = False
    orphan: bool = False  # whether the parent dies once the process is confined
    # Whether the parent sees the success (a signal), not the process
    by_parent: bool = False


_PRIVS, _IDENTITY = Mechanism.NO_NEW_PRIVS, Mechanism.IDENTITY
_LANDLOCK, _RLIMITS = Mechanism.LANDLOCK.value, Mechanism.RLIMITS.value
_TCP = "connect to a service of this machine"
TRIALS = (
    Trial(_PRIVS.value, "become root by a set-uid program", (_IDENTITY,)),
    *(
        Trial(Mechanism.SECCOMP.value, words, (_PRIVS, Mechanism.DESCRIPTORS))
        for words in (
            "read a file of the host",
            "make a socket",
            "start a process",
            "signal a process outside",
            "map memory that is writable and executable",
            "make a file in memory",
            "make an io_uring",
        )
    ),
    *(
        Trial(_LANDLOCK, words, (_PRIVS,))
        for words in (
            "read a file of the host",
            "create a file and write a byte",
            "list a directory",
            "run a program of the host",
        )
    ),
    Trial(_LANDLOCK, _TCP, (_PRIVS,), landlock_abi=_TCP_ABI),
    *(
        Trial(_LANDLOCK, words, (_PRIVS,), landlock_abi=_SCOPE_ABI)
        for words in (
            "connect to a unix socket without a file",
            "signal a process outside",
        )
    ),
    *(
        Trial(_RLIMITS, words)
        for words in (
            "map more memory than the run may have",
            "map more memory than that in parts",
            "use more processor time than the run may have",
            "create a file and write a byte",
        )
    ),
    Trial(_RLIMITS, "open one descriptor more", own_uid=True),
    Trial(_RLIMITS, "start a process", (_IDENTITY,)),
    Trial(_RLIMITS, "lock memory", (_IDENTITY,)),
    Trial(Mechanism.DESCRIPTORS.value, "read a file that the parent had open"),
    Trial(_IDENTITY.value, "become root again", own_uid=True),
    Trial(_IDENTITY.value, "read a file that only root may read", own_uid=True),
    Trial(_IDENTITY.value, "mount a file system", before=_enter_user_namespace),
    Trial(
        Mechanism.UNDUMPABLE.value,
        "read the process from another one of its user",
        (_IDENTITY,),
        before=_become_dumpable,
    ),
    Trial(
        Mechanism.SESSION.value,
        "signal the group that the parent is in",
        by_parent=True,
    ),
    Trial(
        Mechanism.PARENT_DEATH.value, "live on after the parent has died", orphan=True
    ),
    Trial("namespace_net", _TCP),
    Trial("namespace_ipc", "attach to shared memory of the machine"),
    Trial("namespace_pid", "signal a process outside"),
    Trial("namespace_root", "read a file of the host"),
)
"""What can only be seen, not attempted, is in `observation`."""


def applicable_trials(abi: int) -> tuple[Trial, ...]:
    """Return the trials that make sense for this user and Landlock version."""
    own_uid = os.geteuid() == 0 and not mechanisms.is_lonely_root()
    return tuple(
        trial
        for trial in TRIALS
        if trial.landlock_abi <= abi and (own_uid or not trial.own_uid)
    )
