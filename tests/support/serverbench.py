"""A task server among stand-ins, driven by hand, for tests of its parts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import msgspec

from stoilo.audit.format.facts import OperatorRecord, Record
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf
from stoilo.audit.format.records import check_record
from stoilo.audit.log.side import ObjectKind, SideStore
from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.executor.verifier.targets import Reviewer
from stoilo.policies.policy import Policy, Quota, default_policy
from stoilo.server.admission import tokens
from stoilo.server.admission.outdated import Terms
from stoilo.server.app.task_server import Dependencies, TaskServer
from stoilo.server.db.store import Store
from stoilo.server.log.ports import ProjectFacts
from tests.support.server import (
    ManualClock,
    MemoryEngine,
    MemoryLog,
    PlainJudge,
    PythonValidators,
    StampSigner,
    make_level,
)

SOURCE = b"def task(kwargs):\n    return kwargs['x'] + 1\n"


class Project:
    """The project's facts, with an epoch that a test may change or take away."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._epoch: int | None = 1

    def open_epoch(self, number: int | None) -> None:
        self._epoch = number

    def __call__(self) -> ProjectFacts:
        if self._epoch is None:
            raise InternalError("STO-K024", "no epoch is open now")
        end = self._clock() + 30 * 86_400
        return ProjectFacts("stoilo.test/log", self._epoch, end, "2" * 64)


@dataclass
class Bench:
    """A server among stand-ins, driven by hand."""

    server: TaskServer
    store: Store
    clock: ManualClock
    log: MemoryLog
    signer: StampSigner
    engine: MemoryEngine
    judge: PlainJudge
    validators: PythonValidators
    token: str
    directory: Path
    epoch: Callable[[int | None], None]
    side: SideStore

    def request(self, key: str = "k1", **fields: object) -> pb.CreateTaskRequest:
        values: dict[str, object] = {
            "idempotency_key": key,
            "task_module": SOURCE,
            "entry": "task",
            "arguments": encode({"x": 1}),
        }
        return pb.CreateTaskRequest(**(values | fields))  # type: ignore[arg-type]  # by name

    async def submit(self, key: str = "k1", **fields: object) -> str:
        row = await self.server.submissions.create(
            self.token, self.request(key, **fields)
        )
        return row.task_id

    async def issued(self, key: str = "k1", **fields: object) -> tuple[str, bytes]:
        task_id = await self.submit(key, **fields)
        self.server.pipeline.run_once()
        return f"{task_id}_1", self.statement(task_id)

    def statement(self, task_id: str, number: int = 1) -> bytes:
        from stoilo.server.db import rows  # noqa: PLC0415

        with self.store.read() as connection:
            attempt = rows.find_attempt(connection, task_id, number)
        assert attempt is not None
        assert attempt.statement is not None
        return attempt.statement

    def leaves(self) -> list[Leaf]:
        """Return the log's leaves but those of operators' acts, in order."""
        found = [parse_leaf(leaf) for leaf in self.log.leaves]
        return [leaf for leaf in found if leaf.kind is not LeafKind.OPERATOR]

    def kinds(self) -> list[str]:
        """Return the kinds of those leaves."""
        return [leaf.kind.value for leaf in self.leaves()]

    def poll(self, task_id: str) -> pb.PollTaskResponse:
        with self.store.read() as connection:
            owner = tokens.find_owner(connection, self.token, self.clock())
        return self.server.desk.poll(owner, task_id.partition("_")[0])


def make_policy(quota: Quota | None) -> Policy:
    policy = default_policy()
    if quota is None:
        return policy
    return msgspec.structs.replace(policy, quotas={"researcher": quota})


@cache
def empty_tables() -> bytes:
    """Return a database without rows: to make its tables costs more than many tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.sqlite"
        Store.open(f"sqlite:///{path}").close()
        return path.read_bytes()


def make_bench(
    tmp_path: Path,
    quota: Quota | None = None,
    policy: Policy | None = None,
    reviewers: Callable[[], tuple[Reviewer, ...]] = tuple,
    url: str = "",
    held: Mapping[str, str] = MappingProxyType({}),
) -> Bench:
    """`held`: import name → digest of each library that the project's flavors hold."""
    clock, log, signer = ManualClock(), MemoryLog(), StampSigner()
    results = tmp_path / "results"
    results.mkdir(exist_ok=True)
    engine, judge, validators = MemoryEngine(results), PlainJudge(), PythonValidators()
    file = tmp_path / "server.sqlite"
    if not (url or file.exists()):
        file.write_bytes(empty_tables())
    store = Store.open(url or f"sqlite:///{file}")
    project, side = Project(clock), SideStore.in_memory()
    around = Dependencies(
        log=log,
        signer=signer,
        engine=engine,
        judge=judge,
        policy=policy or make_policy(quota),
        jail_of=lambda *_: validators,
        levels=make_level,
        flavors=lambda wish, level, _: content_digest(f"{wish}{level}".encode()),
        facts=project,
        clock=clock,
        revocations=lambda _: b"revocations",
        terms=lambda: Terms(reviewers=reviewers()),
        side=side,
        held_libraries=lambda: tuple(held),
        libraries_of=lambda _flavor, _level: tuple(held.values()),
    )
    server = TaskServer(store, tmp_path / "blobs", around)
    engine.start(server.validation, server.keeper)
    with store.write() as connection:
        token = tokens.issue_token(connection, "ada", tokens.Role.RESEARCHER, clock())
    return Bench(
        server,
        store,
        clock,
        log,
        signer,
        engine,
        judge,
        validators,
        token,
        tmp_path,
        project.open_epoch,
        side,
    )


def records(bench: Bench) -> list[Record]:
    """Return the records of the log's leaves in order, each checked by its leaf."""
    found = []
    for data in bench.log.leaves:
        leaf = parse_leaf(data)
        if leaf.kind is not LeafKind.ADMISSION:
            text = bench.side.get(ObjectKind.RECORD, leaf.digest)
            assert text is not None, leaf
            found.append(check_record(leaf, text))
    return found


def acts(bench: Bench) -> list[OperatorRecord]:
    bench.server.leaves.append_all(bench.log)
    return [one for one in records(bench) if isinstance(one, OperatorRecord)]
