"""The way of a task while 200 people watch the console: how much slower it is than without.

`stoilo up` with two volunteers of its own, all of it real and durable. The watchers are a
process of their own; each asks for the page's part, with the tag of the last one, when the
page's script would, over a fresh connection, as a browser does once the server has let the
old one go. Half of them look at the very label whose tasks are measured, which changes all
the time; each other one at a training of an account of his own, with a curve. Rounds with
and without watchers take turns. Beside the clock's time stands the server's processor time:
the watchers' own load of this machine is not in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import grpc

from bench.rows import Row
from bench.submit import request
from stoilo.core.rpc import progress_pb2, progress_pb2_grpc, tasks_pb2_grpc
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.server.admission import tokens
from stoilo.server.db.store import Store
from stoilo.testing.deployment import Deployment
from stoilo.web.console.live import AGAIN, LEAST_S, MOST_S

OF_ADDRESS = 8  # sign-ins: fewer than one address may make in a minute
LABEL = "bench"
POINTS = 200
OK = 200


@dataclass(frozen=True)
class Sizes:
    """How much is measured: watchers, rounds of each kind, tasks at once, tasks alone."""

    watchers: int = 200
    rounds: int = 3
    together: int = 60
    alone: int = 10


@dataclass(frozen=True)
class Round:
    """What one round came to."""

    rate: float  # tasks/s
    alone_s: float  # median
    cpu_s: float  # of the server's process, for each task


class Site:
    """A deployment, and one researcher's calls of it."""

    def __init__(self, up: Deployment, channel: grpc.Channel, token: str) -> None:
        assert up.line is not None
        self.up, self.url, self.channel = up, up.line.http, channel
        self.stub: Any = tasks_pb2_grpc.TaskServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
        self.metadata = [("authorization", f"Bearer {token}")]
        self._made = 0

    def submit(self) -> str:
        """Submit one small task of the label that is watched."""
        self._made += 1
        asked = request(f"w{self._made}", 1)
        asked.label = f"{LABEL} {self._made}"
        return str(self.stub.CreateTask(asked, metadata=self.metadata).task_id)

    def wait(self, task_id: str) -> None:
        """Wait for a result."""
        asked = pb.PollTaskRequest(task_id=task_id)
        answer = self.stub.PollTask(asked, metadata=self.metadata)
        while answer.state in {"admitting", "running"}:
            time.sleep(0.02)
            answer = self.stub.PollTask(asked, metadata=self.metadata)
        assert answer.state == "succeeded", answer

    def cpu_s(self) -> float:
        """Return the processor time of the server's process so far."""
        fields = (
            Path(f"/proc/{self.up.pid}/stat").read_text().rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def round(self, sizes: Sizes) -> Round:
        """Measure once."""
        began_cpu, alone = self.cpu_s(), []
        for _ in range(sizes.alone):
            start = time.perf_counter()
            self.wait(self.submit())
            alone.append(time.perf_counter() - start)
        start = time.perf_counter()
        for task_id in [self.submit() for _ in range(sizes.together)]:
            self.wait(task_id)
        rate = sizes.together / (time.perf_counter() - start)
        cpu_s = (self.cpu_s() - began_cpu) / (sizes.together + sizes.alone)
        return Round(rate, statistics.median(alone), cpu_s)


def report_training(site: Site, token: str) -> None:
    """Report a training that goes on, of the account whose token it is."""
    points = [
        progress_pb2.ProgressPoint(
            version=n, loss=9.0 / n, held_out=10.0 / n, answers=4
        )
        for n in range(1, POINTS + 1)
    ]
    stub: Any = progress_pb2_grpc.ProgressServiceStub(site.channel)  # type: ignore[no-untyped-call]  # generated
    report = progress_pb2.ReportProgressRequest(label=LABEL, points=points)
    said = [("authorization", f"Bearer {token}")]
    stub.ReportProgress(report, metadata=said)


def sign_in(url: str, secret: str, address: str) -> str:
    """Return the cookies of a session opened from an address of this machine."""
    host = urlsplit(url).netloc
    connection = HTTPConnection(host, timeout=60, source_address=(address, 0))
    connection.request("GET", "/console/sign-in")
    answer = connection.getresponse()
    cookie = str(answer.headers["set-cookie"]).partition(";")[0]
    found = re.search(r'name="form" value="([0-9a-f]+)"', answer.read().decode())
    assert found is not None
    body = urlencode({"form": found[1], "secret": secret})
    kind = "application/x-www-form-urlencoded"
    headers = {"cookie": cookie, "origin": f"http://{host}", "content-type": kind}
    connection.request("POST", "/console/sign-in", body, headers)
    answer = connection.getresponse()
    assert answer.status == 303, answer.read()
    answer.read()
    connection.close()
    cookies = answer.headers.get_all("set-cookie") or []
    return "; ".join(one.partition(";")[0] for one in cookies)


def open_sessions(site: Site, data: Path, own: str, count: int) -> list[str]:
    """Return the cookies of so many sessions, half of them of the measured account.

    That one opens them by links: with its token it may sign in a few times a day only.
    """
    store = Store.open(f"sqlite:///{data / 'server.sqlite'}")
    cookies, role = [], tokens.Role.RESEARCHER
    for number in range(count):
        now = int(time.time())
        with store.write() as connection:
            if number % 2:
                secret = tokens.issue_token(connection, f"w{number}", role, now)
            else:
                name = tokens.find_owner(connection, own, now).name
                secret = tokens.issue_link(connection, name, role, now)
        if number % 2:
            report_training(site, secret)
        address = f"127.0.1.{1 + number // OF_ADDRESS}"
        cookies.append(sign_in(site.url, secret, address))
    store.close()
    return cookies


async def look(url: str, cookie: str, number: int, count: int) -> Counter[int]:
    """Ask for a page's part again and again until the process is told to stop."""
    seen, tag, pause = Counter[int](), '""', LEAST_S
    address = f"127.0.1.{1 + number // OF_ADDRESS}"
    try:
        await asyncio.sleep(LEAST_S * number / count)
        while True:
            status, tag, told = await fetch(url, address, cookie, tag)
            seen[status] += 1
            pause = LEAST_S if status == OK else min(MOST_S, 1.5 * pause)
            await asyncio.sleep(max(pause, told))
    except asyncio.CancelledError:
        return seen


async def fetch(
    url: str, address: str, cookie: str, tag: str
) -> tuple[int, str, float]:
    """Ask for the part once, as who has `tag`; return status, new tag and told pause, s."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(
        place.hostname, place.port, local_addr=(address, 0)
    )
    lines = [f"GET /console/label/{LABEL} HTTP/1.1", f"Host: {place.netloc}"]
    lines += [f"Cookie: {cookie}", "HX-Request: true", f"If-None-Match: {tag}"]
    writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
    head = (await reader.read()).partition(b"\r\n\r\n")[0].decode()
    writer.close()
    found = re.search(r'etag: ("[^"]*")', head)
    told = re.search(rf"{AGAIN}: ([0-9.]+)", head)
    assert told is not None, head
    return int(head.split()[1]), found[1] if found else tag, float(told[1])


async def look_all() -> None:
    """Be the watchers that stdin names until stdin ends; print how they were answered."""
    url, cookies = json.loads(sys.stdin.readline())
    looks = [
        asyncio.create_task(look(url, cookie, number, len(cookies)))
        for number, cookie in enumerate(cookies)
    ]
    await asyncio.to_thread(sys.stdin.read)
    for one in looks:
        one.cancel()
    print(json.dumps(sum(await asyncio.gather(*looks), Counter())))


@contextmanager
def watched(url: str, cookies: list[str], seen: Counter[str]) -> Iterator[None]:
    """Have all sessions look on while the block lasts; adds up how they were answered."""
    command = [sys.executable, "-m", "bench.console_watchers"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps([url, cookies]) + "\n")
        process.stdin.flush()
        time.sleep(LEAST_S + 1.0)  # until each has come once
        yield
        seen.update(json.loads(process.communicate()[0]))


def measure(sizes: Sizes | None = None) -> list[Row]:
    """Return the rows of this suite."""
    sizes, seen = sizes or Sizes(), Counter[str]()
    quiet: list[Round] = []
    busy: list[Round] = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "up"
        with Deployment(data, volunteers=2) as up:
            assert up.line is not None
            page = json.loads(Path(up.line.connection).read_text())
            trusted = grpc.ssl_channel_credentials(page["ca"].encode())
            with grpc.secure_channel(page["grpc"], trusted) as channel:
                site = Site(up, channel, page["token"])
                cookies = open_sessions(site, data, page["token"], sizes.watchers)
                site.wait(site.submit())
                for _ in range(sizes.rounds):
                    quiet.append(site.round(sizes))
                    with watched(site.url, cookies, seen):
                        busy.append(site.round(sizes))
    assert set(seen) <= {"200", "304"}, seen
    print(f"  parts: {dict(seen)}", file=sys.stderr)
    return [
        _row("tasks a second, {} watch the console", sizes, quiet, busy, "rate", "1/s"),
        _row("one task alone, {} watch", sizes, quiet, busy, "alone_s", "s"),
        _row("server's processor time of a task, {} watch", sizes, quiet, busy,
             "cpu_s", "s"),
    ]  # fmt: skip


def _row(
    name: str, sizes: Sizes, quiet: list[Round], busy: list[Round], what: str, unit: str
) -> Row:
    ours, peer = (
        statistics.median(getattr(one, what) for one in part) for part in (busy, quiet)
    )
    ratio = peer / ours if what == "rate" else ours / peer
    about = (name.format(sizes.watchers), ours, unit, "nobody watches", peer)
    if (
        what == "cpu_s"
    ):  # what they cost beside the tasks is in it, however few those are
        return Row(*about, ratio, "of unwatched")
    return Row(*about, ratio, "times as slow", "<= 1.1", ratio <= 1.1)


if __name__ == "__main__":
    asyncio.run(look_all())
