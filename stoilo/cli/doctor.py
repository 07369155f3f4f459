"""`stoilo doctor`: what of this machine is well, what is not, and what to do about it.

Looks and tries, changes nothing. Each check says what it saw; what it could not look at, for
an extra that is not installed or a server that nobody named, is said too and is no failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
import platformdirs

from stoilo.cli.groups import check_platform, require_extra
from stoilo.cli.output import CONNECTION, FOLDER, JSON, now, say
from stoilo.client.address import ENVIRONMENT
from stoilo.core.errors import PolicyRefusal, StoiloError
from stoilo.core.listen import listen
from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import check_in_child
from stoilo.policies.levels import load_level

if TYPE_CHECKING:
    from stoilo.core.http_client import Answer
    from stoilo.executor.verifier.targets import TrustedRelease

UNHEALTHY = 4  # as `stoilo boinc doctor`
LEAST_PYTHON: Final = (3, 11)  # pyproject's requires-python
LEAST_FREE: Final = 1_000_000_000
CLOCK_S: Final = 60.0  # signed metadata and deadlines take no more
ANSWER_S: Final = 10.0
MOST_ANSWER: Final = 64 * 1024
TRIED: Final = b"def double(kwargs):\n    return kwargs['x'] * 2\n"


class Line(msgspec.Struct, frozen=True):
    """What one check saw; `state` is ``ok``, ``note`` (not looked at, or soon) or ``fail``."""

    state: str
    text: str
    advice: str = ""
    name: str = ""  # of the check

    def __str__(self) -> str:
        """Return it as people read it."""
        advice = f" -> {self.advice}" if self.advice else ""
        return f"{self.state:<4}  {self.name}: {self.text}{advice}"


ok, note, fail = (partial(Line, state) for state in ("ok", "note", "fail"))
Lines = Iterator[Line]


@click.command()
@click.option("--data", type=FOLDER, help="Also a server's data directory.")
@CONNECTION
@JSON
def doctor(data: Path | None, connection: str | None, *, as_json: bool) -> int:
    """Check this machine: Python, gate, jail, clock, disk, a server. Changes nothing.

    The server is that of --connection. With --data also what `stoilo up` keeps there and
    needs to start. Takes some seconds: the jail is really tried. Exit code 0: nothing
    fails, 4: something does.

    Example: stoilo doctor --connection connection.json
    """
    file = Path(connection) if connection else None
    checks: list[tuple[str, Callable[[], Lines]]] = [
        ("python", check_python),
        ("gate", check_gate),
        ("jail", check_jail),
        ("disk", lambda: check_disk(data)),
        ("clock", lambda: check_clock(file, data)),
        ("server", lambda: check_server(connection)),
    ]
    if data is not None:
        checks.append(("data", lambda: check_data(data)))
    lines = [line for name, check in checks for line in examine(name, check)]
    healthy = all(line.state != "fail" for line in lines)
    record = {"healthy": healthy, "checks": lines}
    say(record, "\n".join(map(str, lines)), as_json=as_json)
    return 0 if healthy else UNHEALTHY


def examine(name: str, check: Callable[[], Lines]) -> Lines:
    """Yield what `check` sees; an error that ends it is a line too."""
    try:
        for line in check():
            yield msgspec.structs.replace(line, name=name)
    except StoiloError as error:
        state = "note" if error.code == "STO-U002" else "fail"
        yield Line(state, f"{error.message} [{error.code}]", error.hint, name)
    except OSError as error:
        yield Line("fail", str(error.strerror or error), name=name)


def check_python() -> Lines:
    """Say which interpreter runs this."""
    said = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    good = sys.version_info >= LEAST_PYTHON and sys.implementation.name == "cpython"
    yield ok(said) if good else fail(said, "use CPython 3.11 or newer")


def check_gate() -> Lines:
    """Judge a small function, in a child with limits, as `stoilo policy check` does."""
    verdict = check_in_child(GateRequest(source=TRIED, entry="double", level="pure"))
    text = f"a small function is {'admitted' if verdict.admitted else 'refused'}"
    yield ok(text) if verdict.admitted else fail(text, "install stoilo anew")


def check_jail() -> Lines:
    """Try every mechanism of the jail, and run a small function in it."""
    try:
        check_platform()
    except PolicyRefusal as error:  # a researcher needs none
        yield note(f"nothing can be run here: {error.message}", error.hint)
        return
    require_extra("executor")
    from stoilo.sandbox.process.run import run_source  # noqa: PLC0415 - Linux, extra
    from stoilo.sandbox.suite import selftest  # noqa: PLC0415

    level = load_level("pure")
    rows = selftest.run_selftest(level)
    bad = [row for row in rows if row.verdict is not selftest.Verdict.HELD]
    for row in bad:
        text = f"{row.mechanism}: {row.verdict.value}"
        wrong = fail(text, "see stoilo sandbox selftest")
        yield wrong if row.mandatory else note(text, "runs go on without")
    if selftest.judge_rows(rows) == 0:
        yield ok(f"{len(rows) - len(bad)} of {len(rows)} mechanisms held")
        run = run_source(TRIED.decode(), "double", {"x": 21}, level)
        fault = fail(f"a small function failed in it: {run.error} [{run.code}]")
        yield fault if run.value is None else ok("a function ran")


def check_disk(data: Path | None) -> Lines:
    """Say how much room there is where things are written."""
    places = {
        "temporary files": Path(tempfile.gettempdir()),
        "own state": platformdirs.user_state_path("stoilo"),
    }
    if data is not None:
        places |= {"server": data, "log's second disk": data / "audit-head"}
    for name, place in places.items():
        whole = place.absolute()
        there = next(one for one in (whole, *whole.parents) if one.exists())
        free = shutil.disk_usage(there).free
        text = f"{free // 1_000_000:,} MB free for {name} ({there})"
        yield fail(text, "make room") if free < LEAST_FREE else ok(text)


def check_clock(connection: Path | None, data: Path | None) -> Lines:
    """Compare this machine's clock with a server's; without one, with this package's age."""
    made = Path(__file__).stat().st_mtime
    if time.time() < made - CLOCK_S:
        text = "it is behind the day when stoilo was installed"
        yield fail(text, "let a time service set it")
    url = _http_url(connection, data)
    if not url:
        yield note("compared with nothing", "name a server: --connection FILE")
        return
    began = time.time()
    try:
        answer = _get(f"{url}/healthz")
        theirs = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (OSError, KeyError, ValueError) as error:  # a researcher may not reach it
        yield note(f"compared with nothing: {url}: {error}")
        return
    # the header has whole seconds, and was written between the two readings of ours
    off = max(began - theirs - 1, theirs - time.time(), 0.0)
    if off > CLOCK_S:
        text = f"{off:.0f} s off the server's: metadata and deadlines will be refused"
        yield fail(text, "let a time service set both")
    else:
        yield ok(f"as the server's (at most {off + 1:.0f} s off)")


def _get(url: str) -> Answer:
    """Return what is answered there; raises HttpError, an OSError."""
    from stoilo.core.http_client import HttpClient  # noqa: PLC0415 - slow to import

    client = HttpClient(read_s=ANSWER_S)
    try:
        return client.fetch("GET", url, most=MOST_ANSWER, within_s=ANSWER_S)
    finally:
        client.close()


def _http_url(connection: Path | None, data: Path | None) -> str:
    """Return the base of the volunteers' interface that a connection file names, or ''."""
    for file in (connection, data / "connection.json" if data else None):
        if file is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                return str(json.loads(file.read_bytes()).get("http") or "").rstrip("/")
    return ""


def check_server(connection: str | None) -> Lines:
    """Connect as a researcher does: address, certificate, token."""
    if not connection:
        yield note("none is named", f"name one: --connection FILE or ${ENVIRONMENT}")
        return
    from stoilo.client.connection import connect  # noqa: PLC0415 - brings gRPC

    async def greet() -> str:
        async with connect(connection, timeout=ANSWER_S) as server:
            return server.target

    target = asyncio.run(greet())
    yield ok(f"{target} answers and knows the token")


def check_data(data: Path) -> Lines:
    """Say whether a server runs on `data` and is ready, or what keeps it from starting."""
    require_extra("server")
    from stoilo.server.config import load_config  # noqa: PLC0415 - extra
    from stoilo.server.data_directory import keys_of  # noqa: PLC0415
    from stoilo.server.release.released import is_released  # noqa: PLC0415

    config, _ = load_config(data.absolute(), {}, os.environ)
    keys = keys_of(data)
    if data.stat().st_mode & 0o077:
        text = "others on this machine may look into it, and it holds keys"
        yield fail(text, f"chmod 700 {data}")
    released, running = is_released(keys), is_running(data)
    if not released and not any((keys / "offline").glob("*.pem")):
        text = (
            "keys/offline is missing: once something has to be signed, no server starts"
        )
        yield fail(text, "put that folder back from where you keep it")
    if running:
        yield _readiness(_http_url(None, data))
    else:
        for address in (config.grpc, config.http):
            listen(address).close()
        yield ok(f"no server runs on {data.absolute()}; one can start")
    if released or running:  # `up` renews a development root when it starts
        yield from check_release(keys, data)


def is_running(data: Path) -> bool:
    """Whether a server holds the data directory."""
    import fcntl  # noqa: PLC0415 - not on every system that can submit

    try:
        with (data / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def _readiness(url: str) -> Line:
    answer = _get(f"{url}/readyz")
    if answer.status == HTTPStatus.OK:
        return ok("its server runs and is ready")
    text = f"its server runs and is not ready (HTTP {answer.status})"
    return fail(text, "its stderr says `not ready:` and why")


def check_release(keys: Path, data: Path) -> Lines:
    """Say what must be renewed, and whether BOINC's own clients have programs."""
    from stoilo.executor.verifier.trust import (  # noqa: PLC0415 - extra
        installed_release,
        load_trust,
    )
    from stoilo.server.release.parts import read_programs  # noqa: PLC0415
    from stoilo.server.release.released import ReleaseWatch  # noqa: PLC0415
    from stoilo.signer.ceremony.release_status import warnings_of  # noqa: PLC0415
    from stoilo.signer.release_pack import read_release  # noqa: PLC0415

    def trust() -> TrustedRelease:
        root = (keys / "root.json").read_bytes()
        return load_trust(
            read_release(keys), root, now(), installed=installed_release()
        )

    status = ReleaseWatch(keys, trust, now).status()
    state = "note" if status.state == "soon" else "fail"
    for line in warnings_of(status):
        yield Line(state, line)
    if status.state == "ok" and not status.trouble:
        yield ok(f"{status.origin} holds")
    if not read_programs(keys, trust()).programs:
        text = (
            "no programs for BOINC's own clients yet: only `stoilo volunteer` gets work"
        )
        yield note(text, f"stoilo boinc programs --data {data}")
