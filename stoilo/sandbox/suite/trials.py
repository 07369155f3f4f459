"""The list of trials: which mechanism, what it needs beneath it, what is attempted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from stoilo.sandbox.kernel import identity, libc, optional
from stoilo.sandbox.kernel.mandatory import Mechanism
from stoilo.sandbox.suite import attempts
from stoilo.sandbox.suite.attempts import Scene

_PR_SET_DUMPABLE = 4
_TCP_ABI, _SCOPE_ABI = 4, 6


def _do_nothing() -> None:
    pass


def _become_dumpable() -> None:
    """Undo what a change of uid does by itself, so that the control says something."""
    libc.prctl(_PR_SET_DUMPABLE, 1)


def _enter_user_namespace() -> None:
    """Give an ordinary user capabilities to lose."""
    if os.geteuid() != 0 or identity.is_lonely_root():
        optional.enter_user()


@dataclass(frozen=True, slots=True)
class Trial:
    """One attempt under one mechanism alone.

    Attributes:
        name: the mechanism, or ``namespace_…``.
        attempt: what is done inside; its first docstring line is shown.
        needs: mechanisms applied in the control as well.
        before: done just before the mechanism is applied, in the control too.
        landlock_abi: the least ABI that stops it, 0 for all.
        own_uid: whether only a run with a uid of its own is kept from it: an ordinary
            user shares his with his other programs.
        orphan: whether the parent dies once the process is confined.
        by_parent: whether the parent sees the success (a signal), not the process.
    """

    name: str
    attempt: Callable[[Scene], bool]
    needs: tuple[Mechanism, ...] = ()
    before: Callable[[], None] = _do_nothing
    landlock_abi: int = 0
    own_uid: bool = False
    orphan: bool = False
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
    Trial(_PRIVS.value, attempts.gain_privileges, (Mechanism.IDENTITY,)),
    *_of(
        Mechanism.SECCOMP,
        attempts.read_file,
        attempts.make_socket,
        attempts.start_process,
        attempts.signal_outsider,
        attempts.map_executable,
        attempts.make_memfd,
        attempts.make_ring,
        needs=(_PRIVS, Mechanism.DESCRIPTORS),
    ),
    *_of(
        Mechanism.LANDLOCK,
        attempts.read_file,
        attempts.write_file,
        attempts.list_folder,
        attempts.run_program,
        needs=(_PRIVS,),
    ),
    Trial(
        Mechanism.LANDLOCK.value,
        attempts.connect_tcp,
        (_PRIVS,),
        landlock_abi=_TCP_ABI,
    ),
    *(
        Trial(Mechanism.LANDLOCK.value, tried, (_PRIVS,), landlock_abi=_SCOPE_ABI)
        for tried in (attempts.connect_abstract, attempts.signal_outsider)
    ),
    *_of(
        Mechanism.RLIMITS,
        attempts.take_memory,
        attempts.take_memory_in_parts,
        attempts.spin,
        attempts.write_file,
    ),
    Trial(Mechanism.RLIMITS.value, attempts.open_descriptors, own_uid=True),
    *_of(
        Mechanism.RLIMITS,
        attempts.start_process,
        attempts.lock_memory,
        needs=(Mechanism.IDENTITY,),
    ),
    *_of(Mechanism.DESCRIPTORS, attempts.read_descriptor),
    Trial(Mechanism.IDENTITY.value, attempts.become_root, own_uid=True),
    Trial(Mechanism.IDENTITY.value, attempts.read_private_file, own_uid=True),
    Trial(
        Mechanism.IDENTITY.value,
        attempts.mount_something,
        before=_enter_user_namespace,
    ),
    Trial(
        Mechanism.UNDUMPABLE.value,
        attempts.read_environment,
        (Mechanism.IDENTITY,),
        before=_become_dumpable,
    ),
    Trial(Mechanism.SESSION.value, attempts.signal_group, by_parent=True),
    Trial(Mechanism.PARENT_DEATH.value, attempts.outlive, orphan=True),
    Trial("namespace_net", attempts.connect_tcp),
    Trial("namespace_ipc", attempts.attach_memory),
    Trial("namespace_pid", attempts.signal_outsider),
    Trial("namespace_root", attempts.read_file),
)
"""What can only be seen, not attempted, is in `observation`."""


def applicable_trials(abi: int) -> tuple[Trial, ...]:
    """Return the trials that make sense for this user and Landlock version."""
    own_uid = os.geteuid() == 0 and not identity.is_lonely_root()
    return tuple(
        trial
        for trial in TRIALS
        if trial.landlock_abi <= abi and (own_uid or not trial.own_uid)
    )
