"""Members of a cell with links between them: one generation, until the first failure.

Each member has two streams of ours (TLS, token): `Meeting`'s keeps its lease, the other
carries the work. Every wait ends: leases by silence, work by its limit, both by a close.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, cast

from msgspec.structs import replace

from stoilo.core.errors import UnreachableError, UsageError
from stoilo.core.frames import CutError
from stoilo.learn.cells import protocol as c
from stoilo.learn.cells.member import Answer
from stoilo.learn.coordinator.gang import PreCommit, Said, Stage
from stoilo.learn.coordinator.meeting import Meeting
from stoilo.learn.store import protocol as p
from stoilo.learn.store.client import as_error
from stoilo.learn.store.place import ShardPlace

_TICK_S = 0.1
_NOTHING: Mapping[str, bytes] = {}
_LAST_WORDS_S = 2.0  # after the first failure: another member may say why


class BrokenError(Exception):
    """The group is none any more: somebody is gone or silent, or his code `failed`."""

    def __init__(self, why: str, failed: c.Failed | None = None) -> None:
        super().__init__(why)
        self.failed = failed


@dataclass(frozen=True, slots=True)
class CellLimits:
    """How long may be waited, s.

    Attributes:
        order_s: for one order, and for any call between members.
        lease_s: for a sign of life: of a member, and of the trainer.
        form_s: for the group to form; members may just be started, or started again.
    """

    order_s: float = 600.0
    lease_s: float = 15.0
    form_s: float = 120.0


class Group:
    """Members with links: one generation of a cell, until the first failure.

    Args:
        places: of the members, by rank.
        layout: name and options.
        limits: as the cell's.
    """

    def __init__(
        self,
        places: Sequence[ShardPlace],
        layout: tuple[str, bytes],
        limits: CellLimits,
    ) -> None:
        """Form it.

        Raises:
            UnreachableError: ``STO-T037``, not all are there.
            StoiloError: they do not fit together, or one does not want us.
        """
        self._limits, self._closing = limits, ExitStack()
        self._pool = ThreadPoolExecutor(len(places), thread_name_prefix="cell")
        self._closing.callback(self._pool.shutdown)
        try:
            members = {one.shard: one for one in places}
            meeting = Meeting(members, {}, lease_s=limits.lease_s)
            self._meeting = self._closing.enter_context(meeting)
            self._streams = [self._connect(one) for one in places]
            self._form([one.shard for one in places], layout)
        except (OSError, BrokenError) as error:
            self.close()
            raise UnreachableError("STO-T037", f"no links: {error}") from None
        except BaseException:
            self.close()
            raise

    def _connect(self, place: ShardPlace) -> socket.socket:
        stream = place.connect(self._limits.lease_s)
        self._closing.callback(_hang_up, stream)
        stream.settimeout(self._limits.order_s + self._limits.form_s)
        return stream

    def _form(self, names: list[str], layout: tuple[str, bytes]) -> None:
        # A member that hangs leaves time for another try.
        group, limit_s = self._meeting.group, self._limits.form_s / 3
        request = c.Open(group, *layout, self._limits.order_s)
        opened = self._ask_all(request, limit_s)
        _check_alike(names, opened)
        self._ask_all(c.Join(group, opened[0].port), limit_s)

    def execute(self, order: c.Execute, inputs: Mapping[str, bytes]) -> c.Done:
        """Return rank 0's answer; `inputs`: digest → what the order needs.

        Raises:
            BrokenError: the group is none any more.
            StoiloError: the members refuse the order; neither is it then.
        """
        order = replace(order, group=self._meeting.group)
        return self._ask_all(order, self._limits.order_s, inputs)[0]

    def _ask_all(
        self, work: c.Work, limit_s: float, inputs: Mapping[str, bytes] = _NOTHING
    ) -> list[c.Done]:
        """Return everybody's answer; raises as `execute` as soon as one fails."""
        asked = [self._pool.submit(self._ask, s, work, inputs) for s in self._streams]
        end = time.monotonic() + limit_s
        while wait(asked, _TICK_S, FIRST_EXCEPTION).not_done:
            if any(one.done() and one.exception() for one in asked):
                wait(asked, _LAST_WORDS_S)
                break
            if self._meeting.lost or time.monotonic() > end:
                why = self._meeting.lost or f"no answer within {limit_s:.1f} s"
                raise BrokenError(str(why))
        _raise_worst(asked)
        return [one.result() for one in asked]

    def _ask(
        self, stream: socket.socket, work: c.Work, inputs: Mapping[str, bytes]
    ) -> c.Done:
        """Give one member what it lacks, then the work; return its answer."""
        try:
            if inputs:
                said = _say(stream, PreCommit(work.group, [*inputs]), Said)
                for one in inputs.keys() & set(said.missing):
                    _say(stream, Stage(work.group, one, inputs[one]), Said)
            answer = cast("Answer", _say(stream, work, Answer))
        except (OSError, CutError) as error:
            raise BrokenError(f"a member is gone ({type(error).__name__})") from error
        if isinstance(answer, p.Refused):
            raise as_error(answer)
        if isinstance(answer, c.Failed):
            raise BrokenError(f"{answer.error_type}: {answer.error_text}", answer)
        return answer

    def close(self) -> None:
        """Let everybody go: their workers end, whatever they do."""
        self._closing.close()


def _say(stream: socket.socket, message: Any, kind: Any) -> Any:  # noqa: ANN401 - by the caller's kind
    p.send_frame(stream, message)
    answer = p.receive(stream, kind)
    if answer is None:
        raise ConnectionResetError
    return answer


def _hang_up(stream: socket.socket) -> None:
    with suppress(OSError):  # wakes who reads from it
        socket.socket.shutdown(stream, socket.SHUT_RDWR)
    stream.close()


def _raise_worst(asked: Iterable[Future[c.Done]]) -> None:
    """Raise what explains the others: a refusal, the researcher's own error, a loss."""
    silent = BrokenError("a member is silent")
    errors = [one.exception() if one.done() else silent for one in asked]
    if found := [error for error in errors if error is not None]:
        raise min(found, key=_rank_error)


def _rank_error(error: BaseException) -> int:
    if not isinstance(error, BrokenError):
        return 0
    return 1 if error.failed is not None and not error.failed.is_link else 2


def _check_alike(names: list[str], opened: Sequence[c.Done]) -> None:
    """Refuse members of other versions than the first, or kept for another group.

    Raises:
        UsageError: ``STO-C054``, ``STO-T040``.
    """
    wanted = {**opened[0].versions, "stoilo": c.read_versions()["stoilo"]}
    for name, one in zip(names, opened, strict=True):
        if one.versions != wanted:
            why = f"member {name} has {one.versions}, wanted are {wanted}"
            raise UsageError("STO-C054", why)
        if one.peers and one.peers != names:
            raise UsageError(
                "STO-T040",
                f"member {name} was started for the cell {', '.join(one.peers)}",
                hint="give the connection files of exactly those, by rank",
            )
