"""A command group whose commands are imported only when they run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


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

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the command list without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, row[2]) for name, row in self._table.items()])
