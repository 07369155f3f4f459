"""The way of a task by modules: whose functions run between `submit()` and its workunit.

    python -m bench.way

One process has the client, the server, its log and the embedded engine; the gate's jail and
the signer are processes of their own, as always, and not on the list. Counted is each
`stoilo` module of which a function of ours begins while one new task goes from the client's
`submit()` to the workunit's row in the engine's database; generated bindings are left out.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

from sqlalchemy import create_engine, text

import stoilo
from stoilo.server.app.run import UpLine, run_server
from stoilo.server.config import ServerConfig

PATIENCE_S = 120.0
SETTLED_S = 2.0  # by then the first task has set nothing more going


def double(kwargs: dict[str, int]) -> int:
    """Return twice ``x``."""
    return 2 * kwargs["x"]


class Trace:
    """The modules whose functions begin while it is on, in every thread."""

    def __init__(self) -> None:
        self.modules: dict[str, set[str]] = {}
        self.on = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note one call."""
        name = str(frame.f_globals.get("__name__", "")) if self.on else ""
        if event == "call" and name.startswith("stoilo.") and "_pb2" not in name:
            self.modules.setdefault(name, set()).add(frame.f_code.co_qualname)

    def install(self) -> None:
        """Be asked in this thread and in each that starts from now on."""
        threading.setprofile(self)
        sys.setprofile(self)


def count_workunits(data: Path) -> int:
    """Return how many workunits the engine has."""
    engine = create_engine(f"sqlite:///{data / 'engine' / 'engine.sqlite'}")
    with engine.connect() as connection:
        count = connection.scalar(text("SELECT count(*) FROM engine_workunit"))
    engine.dispose()
    return int(count or 0)


async def walk(line: UpLine, data: Path, trace: Trace) -> None:
    """Submit a task to warm up, then trace the next one."""

    def other(kwargs: dict[str, int]) -> int:
        return 3 * kwargs["x"]

    async with stoilo.connect(Path(line.connection)) as connection:
        await connection.create_task(double, {"x": 1}).submit()
        await wait_for(data, 1)
        await asyncio.sleep(SETTLED_S)
        task = connection.create_task(other, {"x": 1})
        trace.on = True
        await task.submit()
        await wait_for(data, 2)
        trace.on = False


async def wait_for(data: Path, workunits: int) -> None:
    """Return once the engine has so many workunits."""
    async with asyncio.timeout(PATIENCE_S):
        while count_workunits(data) < workunits:  # noqa: ASYNC110 - rows
            await asyncio.sleep(0.002)


def run(data: Path) -> Trace:
    """Return the trace of one task on a new server."""
    trace = Trace()
    trace.install()

    def ready(line: UpLine) -> None:
        def work() -> None:
            try:
                asyncio.run(walk(line, data, trace))
            finally:
                signal.raise_signal(signal.SIGTERM)

        threading.Thread(target=work).start()

    config = ServerConfig(data, grpc="127.0.0.1:0", http="127.0.0.1:0")
    asyncio.run(run_server(config, ready))
    sys.setprofile(None)
    return trace


def main() -> None:
    """Print the modules, server's side first, and their number."""
    with tempfile.TemporaryDirectory() as folder:
        trace = run(Path(folder) / "data")
    for name in sorted(trace.modules):
        if "--functions" in sys.argv:
            print(name, " ".join(sorted(trace.modules[name])))
        else:
            print(name)
    ours = sum(name.startswith("stoilo.server") for name in trace.modules)
    print(f"{len(trace.modules)} modules, {ours} of them below stoilo.server")


if __name__ == "__main__":
    main()
