"""What every example has in common: it runs here, or on a project's volunteers.

python examples/vcasgd.py                                   # threads of this process
python examples/vcasgd.py --connect stoilo-data/connection.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import stoilo

Main = Callable[[stoilo.Connection | None], Awaitable[None]]
"""An example: it gets a connection, or None to compute here."""


def run(main: Main, description: str | None) -> None:
    """Run an example as the command line says."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--connect", type=Path, metavar="FILE", help="a project's connection file"
    )
    asyncio.run(attend(main, parser.parse_args(sys.argv[1:]).connect))


async def attend(main: Main, file: Path | None) -> None:
    """Run an example here, or on the volunteers of the project that `file` names."""
    async with contextlib.AsyncExitStack() as stack:
        conn = None
        if file is not None:
            conn = await stack.enter_async_context(await stoilo.connect(file))
        await main(conn)
