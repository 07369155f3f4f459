"""Parts of a live project are killed half-way; nothing is lost or finished twice."""

from __future__ import annotations

import os
import subprocess

import pytest

from stoilo.core.types import Redundancy
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock.installation.checks import examine
from stoilo.server.engines.stock.installation.snapshot import read_snapshot
from tests.support.engine import make_spec

pytestmark = pytest.mark.slow
SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=3, max_total=6, max_success=3
)
NAMES = [f"w_{number}" for number in range(20)]
DAEMONS = [
    "feeder",
    "transitioner",
    "stoilo_validator_pure",
    "stoilo_assimilator_pure",
    "file_deleter",
]


def failures(project):
    found = examine(read_snapshot(project, web=False))
    return {one.name for one in found if one.verdict == "fail"}


def drain(bench, user=1):
    """Finish copies until every workunit has its outcome."""

    def all_over():
        for copy in bench.fetch(user, room=16):
            bench.finish(user, copy, b"same")
        return len(bench.outcomes.outcomes) == len(NAMES)

    bench.wait_for(all_over, "outcomes of all workunits")


def check_all(bench):
    assert set(bench.outcomes.outcomes) == set(NAMES)
    assert set(bench.outcomes.calls.values()) == {1}
    kinds = {one.kind for one in bench.outcomes.outcomes.values()}
    assert kinds == {OutcomeKind.CANONICAL}


@pytest.mark.parametrize("daemon", DAEMONS)
def test_daemon_killed_half_way_loses_and_doubles_nothing(bench, stock_project, daemon):
    bench.engine.create_workunits(
        [make_spec(name, redundancy=SINGLE) for name in NAMES]
    )
    for copy in bench.fetch(1, room=8):
        bench.finish(1, copy, b"same")
    bench.daemons.kill(daemon)
    assert f"daemon {daemon}" in failures(stock_project)
    bench.daemons.start_again()
    drain(bench)
    check_all(bench)
    assert f"daemon {daemon}" not in failures(stock_project)


def test_engine_away_while_results_come_loses_and_doubles_nothing(bench):
    bench.engine.create_workunits(
        [make_spec(name, redundancy=SINGLE) for name in NAMES]
    )
    copies = bench.fetch(1, room=16)
    bench.away()
    for copy in copies:
        bench.finish(1, copy, b"same")
    bench.back()
    drain(bench)
    check_all(bench)


def restart_by(command):
    """Run it without the session's temporary directory: another user's database has no
    right to write there, and would not start."""
    environ = {key: value for key, value in os.environ.items() if key != "TMPDIR"}
    subprocess.run(command, shell=True, check=True, env=environ)  # noqa: S602 - the tester's own


# a socket to the database that went away is collected unclosed, at times
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_database_restarted_half_way_loses_and_doubles_nothing(bench, stock_project):
    command = os.environ.get("STOILO_STOCK_RESTART_DATABASE")
    if not command:
        pytest.skip("needs the command that restarts the project's database")
    bench.engine.create_workunits(
        [make_spec(name, redundancy=SINGLE) for name in NAMES]
    )
    for copy in bench.fetch(1, room=8):
        bench.finish(1, copy, b"same")
    restart_by(command)
    bench.wait_for(
        lambda: "database" not in failures(stock_project), "the database is back"
    )
    bench.daemons.start_again()  # they have ended with it
    drain(bench)
    check_all(bench)
