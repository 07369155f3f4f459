"""Local volunteers of `stoilo up`: real processes, each its own user and its own host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from stoilo.core.files import write_durably
from stoilo.executor.verifier.optin import OptIn
from stoilo.executor.volunteer.ledger import follow_project
from stoilo.executor.volunteer.optin_file import write_opt_in
from stoilo.policies.levels import level_names
from stoilo.server.operations.processes import ChildSpec, SupervisedChild

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.data_directory import DataDir
    from stoilo.server.engines.embedded.engine import EmbeddedEngine


# Local volunteers belong to whoever starts the server, who opts in to all we ship
HIGHEST_LEVEL = level_names()[-1]

# In a local volunteer's own directory, beside what a server writes, not in it (I4)
OPT_IN_FILE = "optin.toml"


class LocalVolunteers:
    """`count` volunteers of one project; keys travel by file, never by argument."""

    def __init__(
        self,
        count: int,
        home: DataDir,
        engine: EmbeddedEngine,
        project: str,
        root_file: Path,
    ) -> None:
        self._children = [
            _volunteer(number, home, engine, project, root_file)
            for number in range(1, count + 1)
        ]

    def start(self) -> None:
        """Start them all; from the main thread (parent-death signal)."""
        for child in self._children:
            child.start()

    def check(self) -> None:
        """Restart the dead; from the main thread."""
        for child in self._children:
            child.check()

    def stop(self) -> None:
        """Stop them all."""
        # All at once, then wait: each may take seconds.
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.stop()


def _volunteer(
    number: int, home: DataDir, engine: EmbeddedEngine, project: str, root_file: Path
) -> SupervisedChild:
    email = f"volunteer{number}@localhost.localdomain"
    account = engine.accounts.ensure(email, engine.now(), max_level=HIGHEST_LEVEL)
    state = home.part("volunteers", str(number))
    follow_project(state / "project", project)  # our port may be another one today
    opt_in = state / OPT_IN_FILE
    if not opt_in.exists():  # the operator may have changed it
        write_opt_in(opt_in, OptIn(max_level=HIGHEST_LEVEL))
    key_file = state / "key"
    write_durably(key_file, account.key.encode() + b"\n", mode=0o600)
    spec = ChildSpec(
        name=f"volunteer {number}",
        module="stoilo.executor.volunteer",
        arguments=(
            *("--project", project),
            *("--key", f"@{key_file}"),
            *("--state", str(state)),
            *("--root", str(root_file)),
            *("--opt-in", str(opt_in)),
        ),
        log=home.part("logs") / f"volunteer-{number}.log",
    )
    environ = {
        # The server's own settings may hold secrets, and mean nothing to a volunteer.
        key: value
        for key, value in os.environ.items()
        if not key.startswith("STOILO_")
    }
    return SupervisedChild(spec, environ)
