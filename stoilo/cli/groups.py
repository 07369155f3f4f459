"""Command groups whose commands are imported only when they run, and what they lack.

A group's help names its commands without loading any: they bring cryptography, the server
or Linux's jail, and what one of them lacks must not be in the way of the others.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from stoilo.core.errors import PolicyRefusal, UsageError

# extra → the packages that it brings and our modules import (pyproject.toml).
PACKAGES = {
    "executor": (
        "cryptography",
        "numpy",
        "pyseccomp",
        "securesystemslib",
        "tuf",
    ),
    "server": (
        "alembic",
        "grpc_health",
        "prometheus_client",
        "pymysql",
        "rich",
        "sqlalchemy",
        "starlette",
        "uvicorn",
    ),
    "web": ("fido2", "jinja2"),
    "learn": ("PIL", "safetensors", "torch"),  # and numpy, which executor has
}


def missing_extra(module: str) -> UsageError | None:
    """Return the error ``STO-U002`` for a missing module, None when no extra has it."""
    package = module.partition(".")[0]
    for extra, packages in PACKAGES.items():
        if package in packages:
            return UsageError(
                "STO-U002",
                f"this command needs the {extra} extra ({package} is missing)",
                hint=f"pip install 'stoilo[{extra}]'",
            )
    return None


def require_extra(extra: str) -> None:
    """Raise ``STO-U002`` unless every package of `extra` can be found."""
    for package in PACKAGES[extra]:
        if importlib.util.find_spec(package) is None:
            error = missing_extra(package)
            assert error is not None  # noqa: S101 - the table is ours
            raise error


def check_platform() -> None:
    """Refuse with ``STO-S002`` outside Linux, before anything of the jail is imported."""
    if not sys.platform.startswith("linux"):
        raise PolicyRefusal(
            "STO-S002",
            "the jail needs Linux",
            hint="use a Linux virtual machine or container",
        )


class TableGroup(click.Group):
    """A group made of a table: name → (module, attribute, one line for ``--help``)."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        table: Mapping[str, tuple[str, str, str]],
        **kwargs: Any,  # noqa: ANN401 - click's own
    ) -> None:
        super().__init__(*args, **kwargs)
        self._table = dict(table)
        # Names alone, for click's "did you mean"; what runs comes from the table
        self.commands = {name: click.Command(name) for name in table}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every command name in the table's order."""
        del ctx
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        del ctx
        if cmd_name not in self._table:
            return None
        module, attribute, _ = self._table[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table is ours
        return command

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Return what may follow, without importing any command."""
        named = [
            CompletionItem(name, help=row[2])
            for name, row in self._table.items()
            if name.startswith(incomplete)
        ]
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the command list without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, row[2]) for name, row in self._table.items()])


def command_table(
    rows: Mapping[str, tuple[str, str]],
) -> dict[str, tuple[str, str, str]]:
    """Return a table of name → (place in `stoilo.cli`, one line).

    A place is a module, and after a colon the function where it is not called as the
    command is.
    """
    table = {}
    for name, (place, line) in rows.items():
        module, _, attribute = place.partition(":")
        function = attribute or name.replace("-", "_")
        table[name] = (f"stoilo.cli.{module}", function, line)
    return table


# By who uses them: readers, monitors, operators, witnesses.
_AUDIT = {
    "verify": ("audit.entries", "Check a whole log against its signed checkpoint."),
    "show": ("audit.entries", "Show entries by number, by task or by what they say."),
    "prove": (
        "audit.entries",
        "Print the proof that a task's admission is in the log.",
    ),
    "check": ("audit.entries", "Verify an entry's proof, or one of misbehaviour."),
    "export": ("audit.entries", "Write a bundle that verifies offline."),
    "monitor": ("audit.monitor", "Follow a log from outside."),
    "revoke": ("audit.removal", "Withdraw what must not run any more, or list it."),
    "retain": ("audit.removal", "Delete sources, arguments, results or salts."),
    "witness": ("audit.witness", "Cosign the checkpoints of logs."),
    "key": ("audit.witness", "Print the verifier key of a log or a witness."),
}


@click.group(cls=TableGroup, table=command_table(_AUDIT))
def audit() -> None:
    """Verify a log, fetch proofs, be a witness, withdraw what must not run any more."""


_BOINC = {
    "programs": ("boinc.programs", "Build and publish what BOINC clients run."),
    "account": ("boinc.people", "Make, find, list, trust or ban volunteers."),
    "hosts": ("boinc.people", "List volunteers' computers; ban one."),
    "install": ("boinc.stock", "Set up a stock BOINC project for stoilo."),
    "doctor": ("boinc.stock", "Check a stock BOINC project from end to end."),
    "migrate": ("boinc.stock", "Move everything to a stock project."),
}


@click.group(cls=TableGroup, table=command_table(_BOINC))
def boinc() -> None:
    """Volunteers' accounts, computers and programs of a project."""


_LEARN = {
    "shard": ("learn.parts", "Serve a shard of the parameter store."),
    "cell": (
        "learn.parts",
        "Be a member of a cell: machines that execute orders together.",
    ),
    "plan": ("learn.parts", "Cut a model into stages of a pipeline."),
    "coordinator": (
        "learn.coordinator",
        "Go on with trainings whose trainers are away.",
    ),
    "dispatcher": ("learn.traffic", "Say which node fetches which model from whom."),
    "node": ("learn.traffic", "Hold models and sums, fetch them and give them on."),
    "traffic": ("learn.traffic", "Show who sent what to whom, rates, who is at fault."),
}


@click.group(cls=TableGroup, table=command_table(_LEARN))
def learn() -> None:
    """What training needs beside a project: parameter stores, coordinators, cells."""


_FLAVOR = {
    "id": ("flavor.naming:identify", "Print the identifiers of a manifest."),
    "show": ("flavor.naming", "Show a flavor, or list the shipped ones."),
    "lock": ("flavor.freezing", "Let pip choose a flavor's wheels for this machine."),
    "build": ("flavor.freezing", "Freeze a flavor: its tree, and a release's files."),
    "compare": ("flavor.freezing", "Compare a build with its manifest or another."),
    "describe": (
        "flavor.describing",
        "Draft a library's file from an installed package.",
    ),
    "check": ("flavor.describing", "Hold a library's file against what is installed."),
}


@click.group(cls=TableGroup, table=command_table(_FLAVOR))
def flavor() -> None:
    """Name frozen dependency sets, build them, look into them."""


_RELEASE = {
    "keygen": ("release.keys", "Make one person's offline key."),
    "online-keys": (
        "release.keys",
        "Make the server's own keys; write their public parts.",
    ),
    "build": ("release.build", "Freeze verifier and flavors, build the launcher."),
    "init": ("release.init", "Propose a project's first release."),
    "request": ("release.request", "Propose changes to a published release."),
    "review": (
        "release.review",
        "Show what changes and who signed, or who holds what.",
    ),
    "sign": ("release.sign", "Add one signature, by one key, on one machine."),
    "publish": ("release.sign", "Put a complete ceremony's release in place."),
    "verify": ("release.verify", "Check everything that a project has published."),
}


@click.group(cls=TableGroup, table=command_table(_RELEASE))
def release() -> None:
    """Sign releases offline by several people, publish them, check them.

    A release: keygen (each person), init or request, review, sign (each person), publish.
    Files in, files out; only publish needs the server.
    """
