"""A project with volunteers in threads of one process: real wire, no jail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoilo.core.errors import InternalError
from stoilo.core.types import Redundancy
from stoilo.executor.slot.executor import Executor
from stoilo.executor.volunteer.client import Volunteer
from stoilo.executor.volunteer.ledger import Ledger
from stoilo.executor.volunteer.scheduler import Settings
from stoilo.executor.volunteer.transfer import Transfer
from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.files.holders import Nodes
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from stoilo.server.engines.interface import OutcomeKind
from tests.support.engine import (
    BodyValidation,
    EchoExecutor,
    OutcomeRecorder,
    ProjectServer,
    make_spec,
)

__all__ = ["SINGLE", "VolunteerWorld"]

OPTIONS = EngineOptions(idle_s=0.02, pace=Pace(next_rpc_delay_s=0.05))
SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=3, max_total=4, max_success=4
)


class VolunteerWorld:
    """An engine, its server, and volunteers in threads.

    Args:
        directory: everything lies below; each volunteer's state under its user's name.
        options: of the engine.
        nodes: the project's own.
    """

    def __init__(
        self,
        directory: Path,
        options: EngineOptions = OPTIONS,
        nodes: Nodes | None = None,
    ) -> None:
        self.directory = directory
        self.engine = EmbeddedEngine(directory / "engine", options=options)
        self.outcomes = OutcomeRecorder()
        if nodes is not None:
            self.engine.join(nodes)
        self.engine.start(BodyValidation(), self.outcomes)
        self.server = ProjectServer(self.engine).__enter__()
        self.volunteers: list[tuple[Volunteer, threading.Thread]] = []

    def key(self, user: str, *, strong: bool = False) -> str:
        """Return a key of a user's account, the weak one unless said."""
        address = f"{user}@example.org"
        account = self.engine.accounts.ensure(address, self.engine.now())
        return account.key if strong else account.weak_key

    def build(
        self,
        user: str,
        executor: Executor | None = None,
        *,
        key: str = "",
        clock: Callable[[], float] = time.time,
        ledger: type[Ledger] = Ledger,
    ) -> Volunteer:
        """Return a volunteer that does not run yet."""
        url = self.server.url
        settings = Settings(url, key or self.key(user), backoff_s=(0.05, 0.3))
        return Volunteer(
            settings,
            ledger(self.directory / user, url),
            Transfer(url, timeout_s=5),
            executor or EchoExecutor(),
            clock=clock,
        )

    def join(
        self,
        user: str,
        executor: Executor | None = None,
        **options: Any,
    ) -> Volunteer:
        """Return a volunteer that runs in a thread until `leave`."""
        volunteer = self.build(user, executor, **options)
        thread = threading.Thread(target=volunteer.run)
        thread.start()
        self.volunteers.append((volunteer, thread))
        return volunteer

    def leave(self) -> None:
        """Stop every volunteer, as a person's Ctrl-C does."""
        for volunteer, thread in self.volunteers:
            volunteer.stop()
            thread.join()
            volunteer.close()
        self.volunteers.clear()

    def ask(
        self,
        *names: str,
        redundancy: Redundancy = SINGLE,
        **changes: Any,
    ) -> None:
        """Hand out workunits."""
        specs = [make_spec(name, redundancy=redundancy, **changes) for name in names]
        self.engine.create_workunits(specs)

    def wait(self, *names: str, seconds: float = 90.0) -> list[OutcomeKind]:
        """Return the outcomes of workunits once all have one; raises ``STO-U005``."""
        limit = time.monotonic() + seconds
        while not all(name in self.outcomes.outcomes for name in names):
            if time.monotonic() > limit:
                raise InternalError("STO-U005", f"{self.engine.status(names[0])}")
            time.sleep(0.01)
        return [self.outcomes.outcomes[name].kind for name in names]

    def close(self) -> None:
        """Stop everything."""
        self.leave()
        self.server.__exit__()
        self.engine.close()
