"""Stand-ins around a work engine: validator, assimilator, executor, and a live project."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import uvicorn

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError
from stoilo.core.types import Redundancy
from stoilo.executor.slot.executor import Executor
from stoilo.executor.verifier.workunit import Disposition, ResultHeader, render_result
from stoilo.server.engines.embedded.web.app import HttpOptions, create_project_app
from stoilo.server.engines.interface import (
    Comparison,
    OutcomeKind,
    PairVerdict,
    ReceivedResult,
    ResultCheck,
    ResultVerdict,
    WorkunitOutcome,
)
from stoilo.server.engines.workunits import Replication, WorkunitFile, WorkunitSpec
from stoilo.server.http.web_server import TimedProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from stoilo.executor.verifier.workunit import Work
    from stoilo.server.engines.embedded.engine import EmbeddedEngine


__all__ = [
    "BodyValidation",
    "EchoExecutor",
    "OutcomeRecorder",
    "ProjectServer",
    "make_spec",
]


def make_spec(
    name: str,
    *,
    redundancy: Redundancy | None = None,
    not_after: int = 4_000_000_000,
    data: bytes = b"input",
    app: str = "pure",
    result_max_bytes: int = 100_000,
    replication: Replication | None = None,
    files: tuple[WorkunitFile, ...] = (),
    memory_bound: int = 0,
    disk_bound: int = 0,
) -> WorkunitSpec:
    """Return a workunit with `files`, or with one small input file."""
    file = WorkunitFile("arguments", content_digest(data), data)
    return WorkunitSpec(
        name=name,
        app=app,
        files=files or (file,),
        redundancy=redundancy or Redundancy(),
        not_after=not_after,
        result_max_bytes=result_max_bytes,
        replication=replication or Replication(),
        memory_bound=memory_bound,
        disk_bound=disk_bound,
    )


RESUMED = b"~"


class BodyValidation:
    """Judges a result by its bytes after the header line.

    ``bad…`` is invalid, ``optin…`` not for this host, ``fatal…`` fatal, ``broken…``
    inconclusive; anything else is valid, and equal bytes are the same answer. One that
    ends in ``~`` is of a resumed run, and the same as without it.

    Attributes:
        slow: bodies whose check is pending.
        slow_pairs: bodies whose comparison is.
    """

    slow: Collection[bytes] = ()
    slow_pairs: Collection[bytes] = ()

    def check(self, result: ReceivedResult) -> ResultCheck:
        """Judge one result by itself."""
        body = self.body(result)
        if body in self.slow:
            return ResultCheck(ResultVerdict.PENDING, "STO-R065")
        for word, verdict in (
            (b"bad", ResultVerdict.INVALID),
            (b"optin", ResultVerdict.NOT_FOR_THIS_HOST),
            (b"fatal", ResultVerdict.FATAL),
            (b"broken", ResultVerdict.INCONCLUSIVE),
        ):
            if body.startswith(word):
                return ResultCheck(verdict, "STO-R057", word.decode())
        resumed_at = int(self.body(result).endswith(RESUMED))
        return ResultCheck(ResultVerdict.VALID, resumed_at=resumed_at)

    def compare(self, left: ReceivedResult, right: ReceivedResult) -> Comparison:
        """Compare two results."""
        one, other = self.body(left), self.body(right)
        if {one, other} & set(self.slow_pairs):
            return Comparison(PairVerdict.PENDING, "STO-R065")
        same = one.removesuffix(RESUMED) == other.removesuffix(RESUMED)
        return Comparison(PairVerdict.SAME if same else PairVerdict.DIFFERENT)

    def body(self, result: ReceivedResult) -> bytes:
        """Return the bytes after the header line, all of them without one."""
        data = result.path.read_bytes()
        return data.partition(b"\n")[2] if data.startswith(b"{") else data


@dataclass(slots=True)
class OutcomeRecorder:
    """An assimilator that keeps what it hears, and can refuse the first times."""

    refuse: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, WorkunitOutcome] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)

    def assimilate(self, outcome: WorkunitOutcome) -> None:
        """Take one outcome."""
        self.calls[outcome.workunit] += 1
        if self.calls[outcome.workunit] <= self.refuse:
            raise RuntimeError("not now")
        known = self.outcomes.get(outcome.workunit)
        assert known is None or known == outcome, "two different outcomes"
        if outcome.canonical is not None:
            self.bodies[outcome.workunit] = outcome.canonical.path.read_bytes()
        self.outcomes[outcome.workunit] = outcome  # last: who sees it finds the body

    def kind(self, name: str) -> OutcomeKind | None:
        """Return how a workunit ended, None before."""
        outcome = self.outcomes.get(name)
        return None if outcome is None else outcome.kind


class EchoExecutor(Executor):
    """An executor without a jail: the frame is what `answer` makes of the arguments."""

    def __init__(
        self,
        answer: Callable[[bytes], bytes] = lambda data: data,
        *,
        seconds: float = 0.0,
    ) -> None:
        self.answer = answer
        self.seconds = seconds
        self.done: list[str] = []
        self.cancelled: list[str] = []
        self.suspended = False
        self._ended = threading.Event()
        self._closed = False

    def execute(self, work: Work) -> bytes:
        """Return a result file."""
        if not self._closed:
            self._ended.clear()
        if self.seconds and self._ended.wait(self.seconds):
            raise InternalError("STO-S008", "the run was cancelled")
        frame = self.answer(work.read("arguments"))
        self.done.append(work.result)
        header = ResultHeader(
            format="stoilo-result/1",
            result=work.result,
            workunit=work.workunit,
            disposition=Disposition.RAN,
        )
        return render_result(header, frame, b"")

    def cancel(self, result: str) -> None:
        """End the run in progress."""
        self.cancelled.append(result)
        self._ended.set()

    def suspend(self) -> None:
        """Note it."""
        self.suspended = True

    def resume(self) -> None:
        """Note it."""
        self.suspended = False

    def close(self) -> None:
        """End the run in progress."""
        self._closed = True
        self._ended.set()


class ProjectServer:
    """The HTTP face of an engine on a loopback port, in a thread of this process.

    Args:
        engine: behind it.
        port: 0 for a free one.
        options: bounds.
        prefix: of the project's path, with final slash, empty for the root.
    """

    def __init__(
        self,
        engine: EmbeddedEngine,
        *,
        port: int = 0,
        options: HttpOptions | None = None,
        prefix: str = "",
        protocol: type[TimedProtocol] = TimedProtocol,
    ) -> None:
        self._socket = socket.create_server(("127.0.0.1", port), backlog=1024)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/{prefix}"
        app = create_project_app(engine, self.url, options=options)
        config = uvicorn.Config(
            app,
            log_level="warning",
            lifespan="off",
            ws="none",
            access_log=False,
            http=protocol,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="project-http",
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.force_exit = True
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
