"""Every call of every service, tried on what is another account's.

The calls come from the services' descriptors: one that is not in `TRIALS` fails here. What
a stranger is told about another's thing must be, word for word, what he is told about one
that never was; each trial's control is that the owner's own call succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import msgspec
import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError
from stoilo.core.rpc import accounts_pb2, progress_pb2, reviews_pb2, tasks_pb2
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.statements import Review, digest_arguments, sign_review
from stoilo.executor.verifier.targets import Reviewer
from stoilo.policies.policy import LevelRule, default_policy
from stoilo.policies.policy import Review as ReviewRule
from stoilo.server.admission import tokens
from stoilo.server.admission.tokens import Role
from stoilo.server.api import tasks
from stoilo.server.api.grpc_server import SERVICE_NAMES, bind_grpc
from stoilo.server.db import rows
from tests.support.serverbench import Bench, make_bench

DATA = encode(b"weights" * 1000)
BLOB, TASK, TOKEN = content_digest(DATA), "task", "token"
UNKNOWN = {BLOB: "9" * 64, TASK: "8" * 32, TOKEN: "7" * 12}
POLICY = msgspec.structs.replace(
    default_policy(),
    levels={"pure": LevelRule(("researcher", "operator"), ReviewRule.MANUAL)},
    digest="1" * 64,
)
SERVICES = {
    service.full_name: service
    for file in (tasks_pb2, reviews_pb2, accounts_pb2, progress_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
}
CALLS = [
    (name, method.name)
    for name, service in SERVICES.items()
    for method in service.methods
]


@dataclass
class World:
    """Ada's task, blob and token; Rita, a reviewer; strangers who have nothing."""

    bench: Bench
    channel: Any
    names: dict[str, str]  # kind of thing → Ada's
    tokens: dict[str, str]  # who → his token
    key: PrivateKey  # Rita's

    async def call(self, who: str, service: str, rpc: str, request: Any) -> str:
        """Return the whole answer as text, or the whole error."""
        method = SERVICES[service].methods_by_name[rpc]
        kinds = (method.client_streaming, method.server_streaming)
        kind = "_".join("stream" if one else "unary" for one in kinds)
        module = {
            "Task": tasks_pb2,
            "Review": reviews_pb2,
            "Account": accounts_pb2,
            "Progress": progress_pb2,
        }[service.rpartition(".")[2].removesuffix("Service")]
        answers = getattr(module, method.output_type.name)
        make = getattr(self.channel, kind)
        stub = make(
            f"/{service}/{rpc}",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=answers.FromString,
        )
        said = [("authorization", f"Bearer {self.tokens[who]}")]
        sent = iter([request]) if method.client_streaming else request
        try:
            answer = stub(sent, metadata=said, timeout=20)
            if method.server_streaming:
                return "OK " + "".join([str(one) async for one in answer])
            return f"OK {await answer}"
        except grpc.aio.AioRpcError as error:
            detail = dict(error.trailing_metadata() or ()).get("stoilo-error-bin", b"")
            told = tasks_pb2.ErrorDetail.FromString(detail)
            return f"{error.code().name} {error.details()} {told}"


Maker = Callable[[World, str], Any]


@dataclass(frozen=True)
class Trial:
    """How one call is tried."""

    named: str  # the kind of thing that it names; empty: it names nothing
    make: Maker  # the request about a thing of that name
    owner: str = "ada"  # whose call succeeds


def signed(world: World, task_id: str) -> bytes:
    """Return a review of Ada's task by Rita, whatever task it is handed in for."""
    del task_id
    with world.bench.store.read() as connection:
        spec = rows.find_task(connection, world.names[TASK]).spec
    review = Review(
        task_module=spec.task_module,
        validator_module=spec.validator_module,
        level=spec.level,
        flavor=spec.flavor,
        limits=spec.limits,
        arguments=digest_arguments(spec.arguments, spec.blobs),
        not_after=world.bench.clock() + 30 * 86_400,
    )
    return sign_review(review, world.key).encode()


def creation(world: World, blob: str) -> Any:
    return world.bench.request("new", blobs=[blob])


T, R, A = tasks_pb2, reviews_pb2, accounts_pb2
TRIALS: dict[str, Trial] = {
    "CreateTask": Trial(BLOB, creation),
    "CreateTasks": Trial(
        BLOB, lambda world, blob: T.CreateTasksRequest(tasks=[creation(world, blob)])
    ),
    "PollTask": Trial(TASK, lambda _, name: T.PollTaskRequest(task_id=name)),
    "WaitTasks": Trial(TASK, lambda _, name: T.WaitTasksRequest(task_ids=[name])),
    "ListTasks": Trial("", lambda *_: T.ListTasksRequest()),
    "CancelTask": Trial(TASK, lambda _, name: T.CancelTaskRequest(task_id=name)),
    "RejectResult": Trial(TASK, lambda _, name: T.RejectResultRequest(task_id=name)),
    "UploadBlob": Trial(
        "", lambda *_: T.UploadBlobRequest(digest=BLOB, size=len(DATA), data=DATA)
    ),
    "DownloadBlob": Trial(BLOB, lambda _, name: T.DownloadBlobRequest(digest=name)),
    "ListReviews": Trial("", lambda *_: R.ListReviewsRequest(), "rita"),
    "GetReview": Trial(TASK, lambda _, name: R.GetReviewRequest(task_id=name), "rita"),
    "SubmitReview": Trial(
        TASK,
        lambda world, name: R.SubmitReviewRequest(
            task_id=name, envelope=signed(world, name)
        ),
        "rita",
    ),
    "RefuseTask": Trial(
        TASK, lambda _, name: R.RefuseTaskRequest(task_id=name), "rita"
    ),
    "ShowAccount": Trial("", lambda *_: A.ShowAccountRequest()),
    "IssueToken": Trial("", lambda *_: A.IssueTokenRequest(name="own", days=1)),
    "RevokeToken": Trial(TOKEN, lambda _, name: A.RevokeTokenRequest(token=name)),
    "ReportProgress": Trial(
        "", lambda *_: progress_pb2.ReportProgressRequest(label="secret plan")
    ),
}
STRANGERS = {
    "eve": Role.RESEARCHER,
    "olga": Role.OPERATOR,
    "otto": Role.AUDITOR,
    "vera": Role.VOLUNTEER,
}
ENTITLED = {"eve", "olga"}  # whose roles may have tasks
TASKS = "stoilo.v1.TaskService"
MAY_SEE_NOTHING = "PERMISSION_DENIED"


@asynccontextmanager
async def a_world(tmp_path) -> AsyncIterator[World]:
    key = PrivateKey.generate()
    named = (Reviewer(key.public, "rita"),)
    bench = make_bench(tmp_path, policy=POLICY, reviewers=lambda: named)
    opened = {"ada": bench.token}
    with bench.store.write() as connection:
        for who, role in {"rita": Role.REVIEWER, **STRANGERS}.items():
            opened[who] = tokens.issue_token(connection, who, role, bench.clock())
        second = tokens.issue_token(connection, "ada", Role.RESEARCHER, bench.clock())
    task_id = await bench.submit(label="secret plan")
    await asyncio.to_thread(bench.server.pipeline.run_once)
    names = {TASK: task_id, BLOB: BLOB, TOKEN: tokens.token_digest(second)[:12]}
    parts = bench.server
    server, port = bind_grpc(
        parts.service,
        "127.0.0.1:0",
        None,
        parts.review_service,
        accounts=parts.account_service,
        progress=parts.progress_service,
    )
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        world = World(bench, channel, names, opened, key)
        sent = TRIALS["UploadBlob"].make(world, "")
        assert await world.call("ada", TASKS, "UploadBlob", sent)
        yield world
    await server.stop(None)


def play(tmp_path, scene: Callable[[World], Any]) -> None:
    async def run() -> None:
        async with a_world(tmp_path) as world:
            await scene(world)

    asyncio.run(run())


def test_trials_are_of_all_services_that_are_served() -> None:
    assert set(SERVICES) == set(SERVICE_NAMES)
    assert set(TRIALS) == {rpc for _, rpc in CALLS}


@pytest.mark.parametrize(
    ("service", "rpc"), [one for one in CALLS if TRIALS[one[1]].named]
)
def test_what_is_anothers_is_told_like_what_never_was(
    tmp_path, service: str, rpc: str
) -> None:
    trial = TRIALS[rpc]
    theirs_kind, unknown = trial.named, UNKNOWN[trial.named]

    async def scene(world: World) -> None:
        theirs = world.names[theirs_kind]

        async def told(who: str, name: str) -> str:
            answer = await world.call(who, service, rpc, trial.make(world, name))
            for written in (name, name[:12]):  # what the caller has said himself
                answer = answer.replace(written, "NAME")
            return answer

        for who in {*STRANGERS, "rita"} - {trial.owner}:
            found = await told(who, theirs)
            assert found == await told(who, unknown), who
            if (service == TASKS and who not in ENTITLED) or trial.owner == "rita":
                assert found.startswith(MAY_SEE_NOTHING)
            elif rpc == "WaitTasks":
                assert found == 'OK task_id: "NAME"\n'
            else:
                assert found.startswith("NOT_FOUND"), found
        if rpc == "WaitTasks":  # ends once the task has
            request = TRIALS["CancelTask"].make(world, theirs)
            await world.call("ada", service, "CancelTask", request)
        own = await told(trial.owner, theirs)
        assert own.startswith("OK")
        assert own != await told(trial.owner, unknown)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("service", "rpc"), [one for one in CALLS if not TRIALS[one[1]].named]
)
def test_call_that_names_nothing_shows_nothing_of_another(
    tmp_path, service: str, rpc: str
) -> None:
    trial = TRIALS[rpc]
    reveals = {"UploadBlob": "OK", "IssueToken": "sto_", "ReportProgress": "OK"}

    async def scene(world: World) -> None:
        secrets = [world.names[TASK], world.names[TOKEN], "secret plan", '"ada"']
        secrets += [BLOB] * (rpc != "UploadBlob")  # he has sent its bytes himself
        for who in {*STRANGERS, "rita"} - {trial.owner}:
            found = await world.call(who, service, rpc, trial.make(world, ""))
            assert all(secret not in found for secret in secrets), who
            if rpc == "IssueToken":
                made = found.split('"')[1]
                with world.bench.store.read() as connection:
                    now = world.bench.clock()
                    assert tokens.find_owner(connection, made, now).name == who
        own = await world.call(trial.owner, service, rpc, trial.make(world, ""))
        shown = reveals.get(rpc)
        assert shown in own if shown else any(one in own for one in secrets)

    play(tmp_path, scene)


def test_bytes_that_another_has_sent_are_taken_as_if_new(tmp_path) -> None:
    """Whether they are there is not told; who has sent all of them may read them."""

    async def scene(world: World) -> None:
        fresh = encode(b"others" * 1000)
        name = content_digest(fresh)
        other = T.UploadBlobRequest(digest=name, size=len(fresh), data=fresh)
        known = await world.call(
            "eve", TASKS, "UploadBlob", TRIALS["UploadBlob"].make(world, "")
        )
        new = await world.call("eve", TASKS, "UploadBlob", other)
        assert known.replace(BLOB, "NAME") == new.replace(name, "NAME")
        half = T.UploadBlobRequest(digest=BLOB, size=len(DATA), data=DATA[:-1])
        said = await world.call("olga", TASKS, "UploadBlob", half)
        assert "shorter than it announced" in said

    play(tmp_path, scene)


@pytest.mark.parametrize("rpc", ["GetReview", "SubmitReview", "RefuseTask"])
def test_task_that_waits_for_no_review_is_not_there_for_a_reviewer(
    tmp_path, rpc: str
) -> None:
    service = "stoilo.v1.ReviewService"

    async def scene(world: World) -> None:
        await asyncio.to_thread(
            world.bench.server.desk.cancel, ada(world), world.names[TASK]
        )
        found = [
            await world.call("rita", service, rpc, TRIALS[rpc].make(world, name))
            for name in (world.names[TASK], UNKNOWN[TASK])
        ]
        assert found[0] == found[1]
        assert "STO-R027" in found[0]

    play(tmp_path, scene)


def ada(world: World) -> Any:
    with world.bench.store.read() as connection:
        return tokens.find_owner(connection, world.tokens["ada"], world.bench.clock())


@pytest.mark.parametrize("rpc", ["PollTask", "CancelTask", "RejectResult"])
def test_call_that_forgets_to_ask_whose_it_is_is_found(
    tmp_path, rpc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the trials themselves."""

    def forgetful(connection: Any, _owner: Any, task_id: str) -> Any:
        task = rows.find_task(connection, task_id)
        if task is None:
            raise DeniedError("STO-R003", "no such task")
        return task

    monkeypatch.setattr(tasks, "_owned", forgetful)
    with pytest.raises(AssertionError):
        test_what_is_anothers_is_told_like_what_never_was(tmp_path, TASKS, rpc)
