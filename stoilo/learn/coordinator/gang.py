"""Groups that start together or not at all: can commit, pre-commit, do commit, with leases.

Two pure machines, told the time and what was said. Whoever is reserved has a lease, and each
message of his group renews it: when the coordinator or the line is gone he lets go by himself,
in every phase and while he runs. A group that ended is never joined again, however late its
messages come. Members are processes of the project, not volunteers.
Source: three-phase commit (Skeen 1981), with leases (Gray, Cheriton 1989) for recovery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from stoilo.core.digests import content_digest

FIRST_S = 7.0  # in which each member has to answer at first
_REMEMBERED = 256  # groups that ended
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class _OfGroup(msgspec.Struct, frozen=True):
    group: _Name  # unique for each attempt


class CanCommit(_OfGroup, frozen=True, tag="can"):
    """Promise yourself to the group."""

    lease_s: Annotated[float, msgspec.Meta(gt=0)]


class PreCommit(_OfGroup, frozen=True, tag="pre"):
    """Say which of these inputs you have not; also while the group runs."""

    inputs: Annotated[list[str], msgspec.Meta(max_length=4096)]  # digests


class Stage(_OfGroup, frozen=True, tag="stage"):
    """Take an input."""

    digest: str
    data: bytes


class DoCommit(_OfGroup, frozen=True, tag="do"):
    """Begin: these are ready, you among them."""

    ready: Annotated[list[str], msgspec.Meta(max_length=4096)]


class Renew(_OfGroup, frozen=True, tag="renew"):
    """Stay as you are for another lease."""


class Cancel(_OfGroup, frozen=True, tag="cancel"):
    """Let go: the group has failed, or has ended."""


Message = CanCommit | PreCommit | Stage | DoCommit | Renew | Cancel
State = Literal["free", "busy", "promised", "ready", "running"]


class Said(msgspec.Struct, frozen=True):
    """What a member is to the group that asked, and which inputs he lacks."""

    state: State
    missing: list[str] = []


class Inputs(dict[str, bytes]):
    """Staged inputs by digest, in memory; a folder has the same three methods."""

    def put(self, digest: str, data: bytes) -> None:
        """Keep an input."""
        self[digest] = data


class Member:
    """One who can be reserved.

    Args:
        inputs: what was staged, by digest; kept between groups.
        most_lease_s: that it grants, s.
        told: called with the group and those ready when it begins, with nobody ready when
            a group that had begun is over.
    """

    def __init__(
        self,
        inputs: Inputs,
        most_lease_s: float = 60.0,
        told: Callable[[str, Sequence[str]], None] = lambda _group, _ready: None,
    ) -> None:
        self.state: State = "free"
        self.group = ""
        self._inputs, self._most_lease_s, self._told = inputs, most_lease_s, told
        self._awaited: list[str] | None = None
        self._lease_s = self._until = 0.0
        self._ended: deque[str] = deque(maxlen=_REMEMBERED)

    def pass_time(self, now: float) -> None:
        """Let go when the lease has run out; `now` is in s and never goes back."""
        if self.group and now >= self._until:
            self._let_go()

    def hear(self, message: Message, now: float) -> Said:
        """Do what is asked, as far as it fits, and say what came of it."""
        self.pass_time(now)
        is_new = not self.group and message.group not in self._ended
        if is_new and isinstance(message, CanCommit):
            self.group, self.state = message.group, "promised"
            self._lease_s = min(message.lease_s, self._most_lease_s)
        elif isinstance(message, Cancel) and message.group not in self._ended:
            self._ended.append(message.group)  # its beginning may come yet
        if message.group != self.group:
            return Said("busy" if self.group else "free")
        self._until = now + self._lease_s
        match message:
            case Cancel():
                self._let_go()
                return Said("free")
            case PreCommit(_, inputs) if self.state in {"promised", "running"}:
                self._awaited = inputs  # of a group that runs: for what comes next
            case Stage(_, digest, data) if digest in (self._awaited or ()):
                if content_digest(data) == digest:
                    self._inputs.put(digest, data)
            case DoCommit(_, ready) if self.state == "ready":
                self.state = "running"
                self._told(self.group, ready)
        missing = [one for one in self._awaited or () if one not in self._inputs]
        if self.state == "promised" and self._awaited is not None and not missing:
            self.state = "ready"
        return Said(self.state, missing)

    def _let_go(self) -> None:
        if self.state == "running":
            self._told(self.group, ())
        if self.group not in self._ended:
            self._ended.append(self.group)
        self.group, self.state, self._awaited = "", "free", None


Out = dict[str, list[Message]]  # to whom → what
_WANTED = {"can_commit": "promised", "pre_commit": "ready", "do_commit": "running"}
_HELD: Mapping[str, int] = {"promised": 1, "ready": 2, "running": 3}


class Gang:
    """The coordinator's side of one attempt.

    Args:
        group: its name, unique.
        members: who has to take part.
        inputs: digest → what has to be with each.
        lease_s: that members are asked for, s.
        staging_s: how long inputs may take, s: members · bytes / bandwidth and some more.

    Attributes:
        phase: can_commit, pre_commit, do_commit; started, failed.
        failed: member → why the group cannot be, or is not any more.
    """

    def __init__(
        self,
        group: str,
        members: Sequence[str],
        inputs: Mapping[str, bytes],
        *,
        lease_s: float = 15.0,
        staging_s: float = 60.0,
    ) -> None:
        self.group, self.members, self.phase = group, tuple(members), "can_commit"
        self.failed: dict[str, str] = {}
        self._inputs, self._lease_s, self._staging_s = inputs, lease_s, staging_s
        self._waiting = set(members)
        self._sent: set[tuple[str, str]] = set()
        self._deadline = float("inf")

    def begin(self, now: float) -> Out:
        """Ask everybody whether he can; `now` in s."""
        self._deadline = now + FIRST_S
        return self._to_all(CanCommit(self.group, self._lease_s))

    def hear(self, name: str, said: Said, now: float) -> Out:
        """Take what a member said; return what is to be said now."""
        if self.phase == "failed":
            return {}
        if said.state not in _HELD:
            why = "is busy" if said.state == "busy" else "has let go"
            return self._fail({name: why})
        wanted = _WANTED.get(self.phase)
        if wanted is None:
            return {} if said.state == "running" else self._fail({name: "has let go"})
        if _HELD[said.state] >= _HELD[wanted]:
            self._waiting.discard(name)
            return {} if self._waiting else self._go_on(now)
        if self.phase != "pre_commit":
            return {}
        fresh = [
            one
            for one in said.missing
            if one in self._inputs and (name, one) not in self._sent
        ]
        self._sent |= {(name, one) for one in fresh}
        return {name: [Stage(self.group, one, self._inputs[one]) for one in fresh]}

    def lose(self, name: str, why: str) -> Out:
        """Note that a member cannot be reached."""
        return {} if self.phase == "failed" else self._fail({name: why})

    def pass_time(self, now: float) -> Out:
        """Give up those who are silent for too long."""
        if self.phase == "failed" or now < self._deadline:
            return {}
        return self._fail(dict.fromkeys(sorted(self._waiting), "is silent"))

    def renew(self) -> Out:
        """Return what keeps leases; due three times a lease."""
        return {} if self.phase == "failed" else self._to_all(Renew(self.group))

    def end(self) -> Out:
        """Let everybody go."""
        return self._fail({})

    def _go_on(self, now: float) -> Out:
        self._waiting = set(self.members)
        if self.phase == "can_commit":
            self.phase, self._deadline = "pre_commit", now + self._staging_s
            return self._to_all(PreCommit(self.group, sorted(self._inputs)))
        if self.phase == "pre_commit":
            self.phase, self._deadline = "do_commit", now + FIRST_S
            return self._to_all(DoCommit(self.group, list(self.members)))
        self.phase, self._deadline, self._waiting = "started", float("inf"), set()
        return {}

    def _fail(self, why: Mapping[str, str]) -> Out:
        self.failed, self.phase = dict(why), "failed"
        return self._to_all(Cancel(self.group))

    def _to_all(self, message: Message) -> Out:
        return {name: [message] for name in self.members}
