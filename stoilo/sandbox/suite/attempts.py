"""What the self-test attempts in a process that one mechanism has closed, and the list of it.

Each attempt returns whether it got through; an OSError or MemoryError means that it did
not. They are fixed programs of ours, harmless where they succeed, and run with a
mechanism lifted only in processes that never see anybody else's code.
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

from stoilo.sandbox.kernel import calls, mechanisms
from stoilo.sandbox.kernel.mechanisms import Mechanism

_SMALL_PATIENCE_S, _PATIENCE_S, _STEP_S = 0.3, 3.0, 0.01
_NEWNS = 0x00020000
_IO_URING_SETUP = 425  # the same on every architecture
_MS_REC_PRIVATE = 0x4000 | 0x40000
_SETUID_FOR_ALL = 0o4001
_SETUID_PROGRAMS = ("mount", "umount", "chsh", "passwd", "newgrp", "fusermount3")


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


def read_file(scene: Scene) -> bool:
    """Read a file of the host."""
    with open(scene.file, "rb", buffering=0) as file:  # noqa: PTH123 - no buffer, no seek
        return bool(file.read(1))


def read_private_file(scene: Scene) -> bool:
    """Read a file that only root may read."""
    with open(scene.private_file, "rb", buffering=0) as file:  # noqa: PTH123 - likewise
        return bool(file.read(1))


def list_folder(scene: Scene) -> bool:
    """List a directory."""
    return bool(os.listdir(scene.folder))  # noqa: PTH208 - the call itself is the point


def write_file(scene: Scene) -> bool:
    """Create a file and write a byte."""
    path = f"{scene.folder}/made-by-{os.getpid()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)  # noqa: PTH108 - likewise
    return os.write(descriptor, b"x") == 1


def run_program(scene: Scene) -> bool:
    """Run a program of the host."""
    del scene
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {})
    return os.waitpid(pid, 0)[1] == 0


def connect_tcp(scene: Scene) -> bool:
    """Connect to a service of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as channel:
        channel.settimeout(_PATIENCE_S)
        channel.connect(("127.0.0.1", scene.port))
    return True


def connect_abstract(scene: Scene) -> bool:
    """Connect to a unix socket without a file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.connect(f"\0{scene.abstract}")
    return True


def make_socket(scene: Scene) -> bool:
    """Make a socket."""
    del scene
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    return True


def signal_outsider(scene: Scene) -> bool:
    """Signal a process outside."""
    os.kill(scene.outsider, 0)
    return True


def start_process(scene: Scene) -> bool:
    """Start a process."""
    del scene
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def map_executable(scene: Scene) -> bool:
    """Map memory that is writable and executable."""
    del scene
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    return True


def make_ring(scene: Scene) -> bool:
    """Make an io_uring."""
    del scene
    buffer = ctypes.create_string_buffer(256)
    os.close(calls.raw_syscall(_IO_URING_SETUP, 1, ctypes.addressof(buffer)))
    return True


def make_memfd(scene: Scene) -> bool:
    """Make a file in memory."""
    del scene
    os.close(os.memfd_create("x"))
    return True


def take_memory(scene: Scene) -> bool:
    """Map more memory than the run may have."""
    mmap.mmap(-1, scene.memory_bytes).close()
    return True


def take_memory_in_parts(scene: Scene) -> bool:
    """Map more memory than that in parts."""
    parts = [mmap.mmap(-1, scene.memory_bytes // 8) for _ in range(9)]
    return len(parts) == 9  # noqa: PLR2004 - as above


def open_descriptors(scene: Scene) -> bool:
    """Open one descriptor more."""
    del scene
    os.close(os.dup(1))
    return True


def spin(scene: Scene) -> bool:
    """Use more processor time than the run may have."""
    while time.process_time() < scene.cpu_s + _SMALL_PATIENCE_S:
        pass
    return True


def lock_memory(scene: Scene) -> bool:
    """Lock memory."""
    del scene
    page = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    library = ctypes.CDLL(None, use_errno=True)
    return int(library.mlock(ctypes.c_void_p(address), ctypes.c_size_t(4096))) == 0


def read_descriptor(scene: Scene) -> bool:
    """Read a file that the parent had open."""
    return bool(os.pread(scene.descriptor, 1, 0))


def become_root(scene: Scene) -> bool:
    """Become root again."""
    del scene
    os.setresuid(0, 0, 0)
    return os.geteuid() == 0


def mount_something(scene: Scene) -> bool:
    """Mount a file system."""
    calls.unshare(_NEWNS)
    calls.mount("", "/", "", _MS_REC_PRIVATE, "")
    calls.mount("none", scene.folder, "tmpfs", 0, "size=4k")
    return True


def read_environment(scene: Scene) -> bool:
    """Read the process from another one of its user."""
    del scene
    target = os.getpid()
    spy = os.fork()
    if spy == 0:
        try:
            with open(f"/proc/{target}/environ", "rb") as file:  # noqa: PTH123 - small
                file.read(1)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(spy, 0)[1] == 0


def signal_group(scene: Scene) -> bool:
    """Signal the group that the parent is in."""
    del scene
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.killpg(0, signal.SIGUSR1)
    return False  # the parent knows whether the signal arrived


def outlive(scene: Scene) -> bool:
    """Live on after the parent has died."""
    del scene
    parent = os.getppid()
    deadline = time.monotonic() + _PATIENCE_S
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(_STEP_S)
    time.sleep(_SMALL_PATIENCE_S)
    return True


def attach_memory(scene: Scene) -> bool:
    """Attach to shared memory of the machine."""
    library = ctypes.CDLL(None, use_errno=True)
    library.shmat.restype = ctypes.c_ssize_t
    return int(library.shmat(scene.shared_memory, None, 0)) != -1


def find_setuid_program() -> str | None:
    """Return a set-uid program of root that only prints help when asked, or None."""
    for folder in ("/usr/bin", "/bin"):
        for name in _SETUID_PROGRAMS:
            path = Path(folder, name)
            try:
                status = path.stat()
            except OSError:
                continue
            if (
                status.st_uid == 0
                and status.st_mode & _SETUID_FOR_ALL == _SETUID_FOR_ALL
            ):
                return str(path)
    return None


def gain_privileges(scene: Scene) -> bool:
    """Become root by a set-uid program.

    It blocks in its help text while its user id is read.
    """
    del scene
    program = find_setuid_program()
    if program is None:
        return False
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while os.write(writer, b"x" * 4096):
            pass
    except BlockingIOError:
        pass
    os.set_blocking(writer, True)
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.execv(program, [program, "--help"])  # noqa: S606 - it asks for no shell
    reached = _becomes_root(pid, os.path.basename(program))  # noqa: PTH119 - a name
    os.close(reader)  # it ends by SIGPIPE
    os.close(writer)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return reached


def _becomes_root(pid: int, program: str) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/status", encoding="utf-8") as lines:  # noqa: PTH123 - likewise
            fields = {name: rest.split() for name, _, rest in map(_split_line, lines)}
        if fields["Name"] == [program]:
            return fields["Uid"][1] == "0"
        time.sleep(_STEP_S)
    return False


def _split_line(line: str) -> tuple[str, str, str]:
    return line.partition(":")


_PR_SET_DUMPABLE = 4
_TCP_ABI, _SCOPE_ABI = 4, 6


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
    # What is done inside; its first docstring line is shown
    attempt: Callable[[Scene], bool]
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

    @property
    def words(self) -> str:
        """What is attempted, for the table."""
        text = (self.attempt.__doc__ or "").partition("\n")[0].rstrip(".")
        return text[:1].lower() + text[1:]


def _of(
    mechanism: Mechanism,
    *tried: Callable[[Scene], bool],
    needs: tuple[Mechanism, ...] = (),
) -> tuple[Trial, ...]:
    return tuple(Trial(mechanism.value, attempt, needs) for attempt in tried)


_PRIVS = Mechanism.NO_NEW_PRIVS
TRIALS = (
    Trial(_PRIVS.value, gain_privileges, (Mechanism.IDENTITY,)),
    *_of(
        Mechanism.SECCOMP,
        read_file,
        make_socket,
        start_process,
        signal_outsider,
        map_executable,
        make_memfd,
        make_ring,
        needs=(_PRIVS, Mechanism.DESCRIPTORS),
    ),
    *_of(
        Mechanism.LANDLOCK,
        read_file,
        write_file,
        list_folder,
        run_program,
        needs=(_PRIVS,),
    ),
    Trial(
        Mechanism.LANDLOCK.value,
        connect_tcp,
        (_PRIVS,),
        landlock_abi=_TCP_ABI,
    ),
    *(
        Trial(Mechanism.LANDLOCK.value, tried, (_PRIVS,), landlock_abi=_SCOPE_ABI)
        for tried in (connect_abstract, signal_outsider)
    ),
    *_of(
        Mechanism.RLIMITS,
        take_memory,
        take_memory_in_parts,
        spin,
        write_file,
    ),
    Trial(Mechanism.RLIMITS.value, open_descriptors, own_uid=True),
    *_of(
        Mechanism.RLIMITS,
        start_process,
        lock_memory,
        needs=(Mechanism.IDENTITY,),
    ),
    *_of(Mechanism.DESCRIPTORS, read_descriptor),
    Trial(Mechanism.IDENTITY.value, become_root, own_uid=True),
    Trial(Mechanism.IDENTITY.value, read_private_file, own_uid=True),
    Trial(
        Mechanism.IDENTITY.value,
        mount_something,
        before=_enter_user_namespace,
    ),
    Trial(
        Mechanism.UNDUMPABLE.value,
        read_environment,
        (Mechanism.IDENTITY,),
        before=_become_dumpable,
    ),
    Trial(Mechanism.SESSION.value, signal_group, by_parent=True),
    Trial(Mechanism.PARENT_DEATH.value, outlive, orphan=True),
    Trial("namespace_net", connect_tcp),
    Trial("namespace_ipc", attach_memory),
    Trial("namespace_pid", signal_outsider),
    Trial("namespace_root", read_file),
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
