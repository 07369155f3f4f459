"""`stoilo boinc`: people, computers and programs of the project in a data directory."""

from __future__ import annotations

import click

from stoilo.cli.boinc.accounts import account
from stoilo.cli.boinc.hosts import ban, hosts, trust
from stoilo.cli.boinc.programs import programs
from stoilo.cli.boinc.stock import doctor, install, migrate


@click.group()
def boinc() -> None:
    """Volunteers' accounts, computers and programs of a project."""


for command in (programs, account, hosts, ban, trust, install, doctor, migrate):
    boinc.add_command(command)
