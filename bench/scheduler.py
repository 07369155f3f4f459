"""Scheduler RPCs of 1,000 simulated hosts against a route that does nothing.

A project serves in a process of its own, durable as in production. Every host is one
account and one computer; a call is what a stock client posts when a task ends: it reports
that copy and asks for another, over a connection of its own, with some calls under way at
once. The project has a program for it, so that a reply names launcher and verifier, which
nobody fetches. Between the calls the hosts upload their results, which is not timed. Then
every host calls as one does that works on its copy and wants nothing: an idle poll. The
peer is the same web stack in a process of its own, which reads the same posts and answers
as many bytes: what is left is the price of the scheduler. A stock BOINC server, which
starts a program for each call, is not here to be measured.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.rows import Row
from bench.stock_request import render_stock_request
from stoilo.core.boinc.messages import UploadInfo
from stoilo.core.types import Redundancy
from stoilo.executor.volunteer.transfer import render_upload_head
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from tests.support.engine import make_spec
from tests.support.programs import ProgramSigner
from tests.support.project import ENGINE, ProjectProcess

AT_ONCE = 32
RESULT = b"result"
SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=3, max_total=6, max_success=3
)
ROUTE = """import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

ANSWER = b"x" * int(sys.argv[1])

async def answer(request):
    await request.body()
    return Response(ANSWER, media_type="text/xml")

app = Starlette(routes=[Route("/sched", answer, methods=["POST"])])
listener = __import__("socket").create_server(("127.0.0.1", 0), backlog=1024)
print(listener.getsockname()[1], flush=True)
config = uvicorn.Config(app, log_level="error", lifespan="off", access_log=False, ws="none")
uvicorn.Server(config).run(sockets=[listener])
"""
_NAME = re.compile(rb"<result><name>([^<]+)<")
_HOST_ID = re.compile(rb"<hostid>([0-9]+)<")
_CODE_SIGN_KEY = re.compile(rb"<code_sign_key>\s*([^<]+)</code_sign_key>")
_UPLOAD = re.compile(
    rb"<file_info><name>([^<]+)</name><max_nbytes>[^<]+</max_nbytes>"
    rb"<upload_url>http://[^/]+([^<]+)<"
)


@dataclass
class Host:
    """One simulated computer, what it was told at first contact, and its copy."""

    key: str
    cpid: str
    seqno: int = 0
    host_id: int = 0
    code_sign_key: str = ""
    copy: str = ""
    upload: tuple[str, str] = ("", "")

    def request(self, *, idle: bool = False) -> bytes:
        """Return the next call: report what is held and ask for another, or do neither."""
        self.seqno += 1
        return render_stock_request(
            key=self.key,
            host_id=self.host_id,
            seqno=self.seqno,
            cpid=self.cpid,
            code_sign_key=self.code_sign_key,
            copy="" if idle else self.copy,
            held=self.copy if idle else "",
        )

    def take(self, reply: bytes) -> None:
        """Note the copy that came with a reply, and what is told once."""
        name, upload = _NAME.search(reply), _UPLOAD.search(reply)
        assert name is not None, reply
        assert upload is not None, reply
        self.copy = name[1].decode()
        self.upload = (upload[1].decode(), upload[2].decode())
        if known := _HOST_ID.search(reply):
            self.host_id = int(known[1])
        if key := _CODE_SIGN_KEY.search(reply):
            self.code_sign_key = key[1].decode()

    def result(self) -> bytes:
        """Return the upload of the copy that is held."""
        name, url = self.upload
        md5 = hashlib.md5(RESULT, usedforsecurity=False).hexdigest()
        file = UploadInfo(name, url, len(RESULT))
        return (
            render_upload_head(file, nbytes=len(RESULT), checksum=md5, offset=0)
            + RESULT
        )


@dataclass
class Calls:
    """What a round of calls took: `seconds` altogether, `times` each, s."""

    seconds: float = 0.0
    times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Return calls per second."""
        return len(self.times) / self.seconds

    @property
    def p99_ms(self) -> float:
        """Return what 99 of 100 calls stay below, ms."""
        return statistics.quantiles(self.times, n=100)[98] * 1e3


async def post(port: int, path: str, body: bytes) -> bytes:
    """Return the answer's body; every call has its own connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    head_bytes, _, rest = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head_bytes.partition(b"\r\n")[0], answer[:500]
    return rest


async def everybody(
    hosts: Sequence[Host], call: Callable[[Host], Awaitable[None]]
) -> Calls:
    """Let every host call once, `AT_ONCE` at a time."""
    done, waiting = Calls(), iter(hosts)

    async def line() -> None:
        for host in waiting:
            start = time.perf_counter()
            await call(host)
            done.times.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(line() for _ in range(AT_ONCE)))
    done.seconds = time.perf_counter() - start
    return done


@dataclass
class Rounds:
    """The timed rounds of one side, and how many bytes the replies have."""

    working: list[Calls] = field(default_factory=list)
    idle: list[Calls] = field(default_factory=list)
    size: int = 0


async def rounds_of(url: str, hosts: Sequence[Host], rounds: int) -> Rounds:
    """Return the project's rounds."""
    port, found = urlsplit(url).port or 0, Rounds()

    async def schedule(host: Host) -> None:
        reply = await post(port, "/sched", host.request())
        found.size = len(reply)
        host.take(reply)

    async def poll(host: Host) -> None:
        reply = await post(port, "/sched", host.request(idle=True))
        assert b"<result" not in reply, reply

    async def upload(host: Host) -> None:
        answer = await post(port, host.upload[1], host.result())
        assert b"<status>0</status>" in answer, answer

    await everybody(hosts, schedule)  # first contact
    for _ in range(rounds):
        await everybody(hosts, upload)
        found.working.append(await everybody(hosts, schedule))
    for _ in range(rounds):
        found.idle.append(await everybody(hosts, poll))
    return found


async def peer_rounds(port: int, hosts: Sequence[Host], rounds: int) -> Rounds:
    """Return the same posts' rounds against the route that does nothing."""

    async def call(host: Host) -> None:
        await post(port, "/sched", host.request())

    async def poll(host: Host) -> None:
        await post(port, "/sched", host.request(idle=True))

    await everybody(hosts, call)
    return Rounds(
        [await everybody(hosts, call) for _ in range(rounds)],
        [await everybody(hosts, poll) for _ in range(rounds)],
    )


def give_program(project: ProjectProcess) -> None:
    """Let the project have a program for stock clients, before it starts."""
    engine, signer = EmbeddedEngine(project.directory / ENGINE), ProgramSigner()
    engine.set_programs([signer.program()], signer.key)
    engine.close()


def measure_project(hosts: int, rounds: int) -> Rounds:
    """Return our rounds."""
    with tempfile.TemporaryDirectory() as folder:
        project = ProjectProcess(Path(folder))
        names = [f"w{number}_1" for number in range(hosts * (rounds + 1))]
        project.create([make_spec(name, redundancy=SINGLE) for name in names])
        give_program(project)
        keys = project.keys(hosts)
        computers = [Host(key, f"{at:032x}") for at, key in enumerate(keys)]
        with project:
            return asyncio.run(rounds_of(project.url, computers, rounds))


def measure_peer(hosts: int, rounds: int, size: int) -> Rounds:
    """Return the peer's rounds, whose answers have `size` bytes."""
    computers = [
        Host("k" * 32, f"{at:032x}", 0, at, "k" * 300, "w1_1_0") for at in range(hosts)
    ]
    with subprocess.Popen(
        [sys.executable, "-c", ROUTE, str(size)], stdout=subprocess.PIPE
    ) as route:
        assert route.stdout is not None
        try:
            port = int(route.stdout.readline())
            return asyncio.run(peer_rounds(port, computers, rounds))
        finally:
            route.kill()


def rows_of(name: str, ours: Sequence[Calls], peers: Sequence[Calls]) -> list[Row]:
    """Return rate and tail of one kind of call, medians over the rounds."""
    rate, peer_rate = (
        statistics.median(one.rate for one in own) for own in (ours, peers)
    )
    late, peer_late = (
        statistics.median(one.p99_ms for one in own) for own in (ours, peers)
    )
    against = "same web stack, a route that does nothing"
    return [
        Row(name, rate, "1/s", against, peer_rate, rate / peer_rate, "of its rate"),
        Row(f"{name}, p99 of {AT_ONCE} at once", late, "ms", against, peer_late,
            late / peer_late, "times as long"),
    ]  # fmt: skip


def measure(hosts: int = 1000, rounds: int = 3) -> list[Row]:
    """Return the rows of calls that report and take, and of those that do neither."""
    ours = measure_project(hosts, rounds)
    peers = measure_peer(hosts, rounds, ours.size)
    name = f"scheduler RPC, {hosts:,} hosts"
    return [
        *rows_of(f"{name}, report one and take one", ours.working, peers.working),
        *rows_of(f"{name}, idle poll", ours.idle, peers.idle),
    ]
