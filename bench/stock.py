"""A stock project as the engine, against the thesis's way: processes for everything.

With ``PROJECT_DIR`` set workunits are made on that live project (and cancelled again);
without, on one that is played, whose tools start an interpreter where BOINC's are C++, so
that its peer is slower than a real one. Results are always compared on a played project:
nothing is put into a live one's tables. With ``DATA_DIR`` as well, the data directory whose
release is installed there, two real clients run tasks end to end.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.rows import Row
from bench.stock_clients import measure_clients
from bench.validate import PEER, Pair, write_pair
from stoilo.server.engines.interface import (
    Comparison,
    PairVerdict,
    ReceivedResult,
    ResultCheck,
    ResultVerdict,
)
from stoilo.server.engines.stock.engine import StockEngine
from stoilo.server.engines.stock.input_files import (
    InputSlot,
    input_template,
    result_template,
)
from stoilo.server.engines.stock.project.database import owner_name
from stoilo.server.engines.stock.project.directory import StockProject, read_project
from stoilo.server.validation.answers import parse_answer
from stoilo.server.validation.validators import (
    Call,
    ValidatorJails,
    ValidatorProgram,
    Validators,
)
from stoilo.testing.deployment import Deployment
from tests.support.engine import OutcomeRecorder, make_spec
from tests.support.stocktools.daemons import FakeDaemons, output_name
from tests.support.stocktools.hosts import FakeHosts
from tests.support.stocktools.project import FakeProject, make_fake_project

REACH = 20
PROGRAM = ValidatorProgram(b"", "", "", "pure")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: workunits of a batch, tasks of the peer, comparisons."""

    batch: int = 1000
    peers: int = 8
    calls: int = 200


class DefaultComparator:
    """The server's own judgement with the default comparator, without its database."""

    def __init__(self, validators: Validators) -> None:
        self._validators = validators

    def check(self, result: ReceivedResult) -> ResultCheck:
        """Decode one result."""
        parse_answer(result.path.read_bytes(), 0)
        return ResultCheck(ResultVerdict.VALID)

    def compare(self, left: ReceivedResult, right: ReceivedResult) -> Comparison:
        """Decode and compare two."""
        one, other = (
            parse_answer(result.path.read_bytes(), 0).items[0].value
            for result in (left, right)
        )
        assert one is not None
        assert other is not None
        same = self._validators.decide(Call(PROGRAM, "compare", (one, other)))
        return Comparison(PairVerdict.SAME if same else PairVerdict.DIFFERENT)


def rate(step: Callable[[], object], count: int) -> float:
    """Return how often a second something is done, over `count` times."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return count / (time.perf_counter() - start)


@contextmanager
def place() -> Iterator[tuple[StockProject, str, str]]:
    """Yield project, database URL and what to call it."""
    live = os.environ.get("PROJECT_DIR", "")
    if live:
        project = read_project(Path(live))
        yield project, project.database_url, "live"
        return
    with tempfile.TemporaryDirectory() as folder:
        fake = make_fake_project(Path(folder) / "project")
        yield fake.project, fake.database_url, "played"


def owner_of_data() -> str:
    """Return the name of the server of ``DATA_DIR``, whose the project may be already."""
    data = os.environ.get("DATA_DIR")
    return owner_name(Deployment(Path(data)).log_key()) if data else ""


def measure_creation(sizes: Sizes) -> Row:
    """Return the row of workunits made: one batch against two processes each."""
    with place() as (project, url, kind):
        owner = owner_of_data() if kind == "live" else ""
        engine = StockEngine(project, database_url=url, owner=owner)
        prefix = f"b{secrets.token_hex(4)}"
        names = [f"{prefix}_{number}" for number in range(sizes.batch)]
        specs = [make_spec(name, data=name.encode()) for name in names]
        try:
            engine.create_workunits([make_spec(f"{prefix}_first")])
            start = time.perf_counter()
            engine.create_workunits(specs)
            ours = sizes.batch / (time.perf_counter() - start)
            made = [engine.status(name) for name in names]
            assert all(
                one is not None and "create_work" not in one.explanation for one in made
            )
            theirs = _rate_of_processes(project, prefix, sizes.peers)
        finally:
            if kind == "live":
                engine.cancel(*names, f"{prefix}_first")
            engine.close()
    name = f"workunits made on a stock project ({kind}), {sizes.batch} at a time"
    return _row(name, ours, "stage_file + create_work a task", theirs, REACH)


def _rate_of_processes(project: StockProject, prefix: str, count: int) -> float:
    """Return how many tasks a second two processes each can make."""
    spec = make_spec(prefix)
    inputs = input_template(spec, (InputSlot("arguments", sticky=False),))
    outputs = result_template(spec.result_max_bytes)
    for template in (inputs, outputs):
        (project.templates / template.name).write_text(template.text)
    numbers = iter(range(count))

    def one() -> None:
        name = f"{prefix}_peer{next(numbers)}"
        (project.root / name).write_text(name)
        _run(project, "stage_file_native", "--copy", name)
        (project.root / name).unlink()
        _run(
            project,
            *("create_work", "--appname", "pure", "--wu_name", name),
            *("--wu_template", f"templates/{inputs.name}"),
            *("--result_template", f"templates/{outputs.name}", name),
        )

    found = rate(one, count)
    for number in range(count):
        with suppress(subprocess.CalledProcessError):
            _run(project, "cancel_jobs", "--name", f"{prefix}_peer{number}")
    return found


def _run(project: StockProject, tool: str, *arguments: str) -> None:
    subprocess.run(
        [str(project.tool(tool)), *arguments],
        cwd=project.root,
        check=True,
        stdout=subprocess.DEVNULL,
    )


def measure_validation(sizes: Sizes) -> list[Row]:
    """Return the rows of pairs compared: by the socket, and through BOINC's script."""
    jails = ValidatorJails()
    try:
        with tempfile.TemporaryDirectory() as folder:
            pair = write_pair(Path(folder))
            fake = make_fake_project(Path(folder) / "project")
            engine = StockEngine(fake.project, database_url=fake.database_url)
            validation = DefaultComparator(Validators(jails.of))
            engine.listen(validation, OutcomeRecorder())
            try:
                paths = _two_results(fake, engine, pair)
                return _measure_calls(fake, paths, pair, sizes.calls)
            finally:
                engine.close()
    finally:
        jails.close()


def _two_results(fake: FakeProject, engine: StockEngine, pair: Pair) -> list[str]:
    """Return the paths of two uploaded results of one workunit."""
    daemons, hosts = FakeDaemons(fake, engine.now), FakeHosts(fake, engine.now)
    database = fake.open_database()
    engine.create_workunits([make_spec("w_1")])
    daemons.transition()
    for user, file in enumerate(pair.files, 1):
        (copy,) = hosts.fetch(user)
        hosts.upload(copy, file.read_bytes())
        hosts.report(user, copy)
    found = [output_name(row) for row in database.rows("SELECT * FROM result")]
    for one in (daemons, hosts, database):
        one.close()
    return [str(path) for name in found for path in fake.project.upload.rglob(name)]


def _measure_calls(
    fake: FakeProject, paths: list[str], pair: Pair, calls: int
) -> list[Row]:
    request = "\0".join(["stoilo_compare", *paths]).encode()
    script = [str(fake.project.tool("stoilo_compare")), *paths]

    def ask() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(fake.project.socket))
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(8) == b"0"

    ours = rate(ask, calls)
    with_script = rate(lambda: subprocess.run(script, check=True), max(1, calls // 10))
    peer = [sys.executable, "-c", PEER, *map(str, pair.lists)]
    theirs = rate(lambda: subprocess.run(peer, check=True), max(1, calls // 10))
    against = "a Python process per comparison"
    return [
        _row(
            "validation pairs of a stock project, by the socket",
            ours,
            against,
            theirs,
            REACH,
        ),
        _row(
            "the same, through the script that BOINC starts",
            with_script,
            against,
            theirs,
        ),
    ]


def measure(sizes: Sizes | None = None) -> list[Row]:
    """Return the rows of a stock project."""
    sizes = sizes or Sizes()
    rows = [measure_creation(sizes), *measure_validation(sizes)]
    project, data = os.environ.get("PROJECT_DIR"), os.environ.get("DATA_DIR")
    if project and data:
        rows += measure_clients(Path(project), Path(data))
    return rows


def _row(
    name: str, ours: float, against: str, theirs: float, reach: int | None = None
) -> Row:
    return Row(
        name=name,
        ours=ours,
        unit="1/s",
        peer_name=against,
        peer=theirs,
        ratio=ours / theirs,
        ratio_of="times as many",
        target=f">= {reach}x" if reach else "",
        met=ours / theirs >= reach if reach else None,
    )
