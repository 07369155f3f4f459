"""Wiring: one server out of its parts and its neighbours, with no decision of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from sqlalchemy import select

from stoilo.core.limits import BOUNDS
from stoilo.server import schema
from stoilo.server.admission import AdmissionPipeline
from stoilo.server.assimilation import OutcomeKeeper
from stoilo.server.blobs import BlobStore
from stoilo.server.decoding import SERVICE_NAME, add_task_service
from stoilo.server.gatekeeper import Gatekeeper
from stoilo.server.leaves import LeafBook
from stoilo.server.refusals import RefusalBook
from stoilo.server.service import TaskService
from stoilo.server.statements import ProjectFacts, StatementWriter
from stoilo.server.submission import Submissions
from stoilo.server.tasks import TaskDesk
from stoilo.server.validation import ResultValidation
from stoilo.server.validators import JailRunner, Validators
from stoilo.server.workunits import WorkunitWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stoilo.policies.policy import Policy
    from stoilo.server.draft import FlavorLookup, LevelLookup
    from stoilo.server.engines.interface import Engine
    from stoilo.server.ports import AdmissionSigner, Judge, Log
    from stoilo.server.records import TaskRow
    from stoilo.server.store import Store
    from stoilo.server.tls import TlsFiles

__all__ = ["Neighbours", "TaskServer", "bind_grpc"]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Everything that the server talks to, real or (in tests) standing in.

    Attributes:
        log: the audit log's one writer.
        signer: admits statements.
        engine: issues workunits.
        judge: the gate.
        policy: in force.
        jail_of: validators' jail by level name.
        levels: level by name.
        flavors: flavor id by (wish, level).
        facts: of the project, at this moment.
        clock: seconds since 1970.
    """

    log: Log
    signer: AdmissionSigner
    engine: Engine
    judge: Judge
    policy: Policy
    jail_of: Callable[[str], JailRunner]
    levels: LevelLookup
    flavors: FlavorLookup
    facts: Callable[[], ProjectFacts]
    clock: Callable[[], int]


class TaskServer:
    """The assembled server: a gRPC service, an admission pipeline, an engine's ears."""

    def __init__(
        self,
        store: Store,
        blob_directory: Path,
        around: Neighbours,
        refusal_interval_s: int = 60,
    ) -> None:
        clock = around.clock
        self.store = store
        self._engine = around.engine
        self._salts: dict[int, str] = {}
        self.blobs = BlobStore(blob_directory, store, clock())
        validation = ResultValidation(store, Validators(around.jail_of))
        self.leaves = LeafBook(
            store, lambda: around.facts().epoch, clock, refusal_interval_s
        )
        gatekeeper = Gatekeeper(around.judge, store, clock)

        def review(task: TaskRow) -> str:
            if task.attempt == 1 and task.spec.policy_digest == around.policy.digest:
                return task.spec.policy_digest  # judged at submission, by this policy
            return gatekeeper.review_again(task)

        self.pipeline = AdmissionPipeline(
            store,
            around.log,
            around.signer,
            around.engine,
            statements=StatementWriter(around.facts, around.levels, self._salt_of),
            workunits=WorkunitWriter(store, self.blobs),
            leaves=self.leaves,
            review=review,
            clock=clock,
        )
        self.validation = validation
        self.keeper = OutcomeKeeper(
            store,
            validation,
            self.blobs,
            retry=self.pipeline.retry,
            wake=self.pipeline.wake,
            clock=clock,
        )
        self.submissions = Submissions(
            store,
            gatekeeper,
            RefusalBook(store, clock),
            around.policy,
            levels=around.levels,
            flavors=around.flavors,
            clock=clock,
            stored=self.pipeline.wake,
        )
        self.desk = TaskDesk(
            store,
            around.engine,
            clock=clock,
            trouble=lambda: str(self.pipeline.trouble or ""),
            wake=self.pipeline.wake,
        )
        self.service = TaskService(
            store, self.submissions, self.desk, self.blobs, around.policy, clock
        )

    def _salt_of(self, account_id: int) -> str:
        """Return the account's salt, which never changes."""
        if account_id not in self._salts:
            table = schema.account
            with self.store.read() as connection:
                query = select(table.c.salt).where(table.c.id == account_id)
                self._salts[account_id] = str(connection.scalar(query))
        return self._salts[account_id]

    def start(self) -> None:
        """Let the engine and the pipeline move; left-overs of a crash come first."""
        self._engine.start(self.validation, self.keeper)
        self.pipeline.start()

    def stop(self) -> None:
        """Stop moving; everything acknowledged is on the disk already."""
        self.pipeline.stop()
        self._engine.close()


def bind_grpc(
    service: TaskService, address: str, tls: TlsFiles | None
) -> tuple[grpc.aio.Server, int]:
    """Return a gRPC server with health and its bound port; must run in the event loop.

    `tls` None is for tests on loopback only; `stoilo up` always has TLS.
    Raises ``RuntimeError`` when the port is taken (gRPC's own).
    """
    limit = BOUNDS.rpc_message_bytes
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", 8 * limit),
            ("grpc.max_concurrent_streams", 1024),
            ("grpc.so_reuseport", 0),
        ]
    )
    add_task_service(service, server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if tls is None:
        port = server.add_insecure_port(address)
    else:
        credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)])
        port = server.add_secure_port(address, credentials)
    server.stoilo_health = checks
    return server, port


async def set_serving(server: grpc.aio.Server, *, serving: bool) -> None:
    """Tell health checkers whether calls are welcome."""
    states = health_pb2.HealthCheckResponse
    state = states.SERVING if serving else states.NOT_SERVING
    for name in ("", SERVICE_NAME):
        await server.stoilo_health.set(name, state)
