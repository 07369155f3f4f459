"""Many hosts of every kind against a live project: each workunit ends once, and rightly."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from sqlalchemy import select

from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome
from tests.support.engine import (
    BodyValidation,
    OutcomeRecorder,
    ProjectServer,
    make_spec,
)
from tests.support.hosts import HostCrowd
from tests.support.simulatedhost import Behaviour, make_hosts

OPTIONS = EngineOptions(idle_s=0.02, pace=Pace(next_rpc_delay_s=0.3))
PAIR = Redundancy(
    min_quorum=2, target_results=2, max_error=12, max_total=24, max_success=16
)
MIXED = {
    Behaviour.SLOW: 0.1,
    Behaviour.MORTAL: 0.15,
    Behaviour.FORGETFUL: 0.1,
    Behaviour.CHEAT: 0.05,
    Behaviour.CLONE: 0.05,
}


class Project:
    """An engine with its server, and accounts."""

    def __init__(self, directory):
        self.engine = EmbeddedEngine(directory / "engine", options=OPTIONS)
        self.outcomes = OutcomeRecorder()
        self.engine.start(BodyValidation(), self.outcomes)
        self.server = ProjectServer(self.engine).__enter__()

    def keys(self, users, hosts_each=1):
        emails = [f"user{n}@example.org" for n in range(users)]
        accounts = [
            self.engine.accounts.ensure(email, self.engine.now()) for email in emails
        ]
        return [account.weak_key for account in accounts] * hosts_each

    def copies(self):
        """Return (workunit, user, host) of every copy that was handed out."""
        table = schema.results
        query = select(table.c.workunit_id, table.c.user_id, table.c.host_key)
        with self.engine._database.read() as connection:
            return list(connection.execute(query.where(table.c.sent_at > 0)).all())

    def close(self):
        self.server.__exit__()
        self.engine.close()


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    yield made
    made.close()


def run_crowd(
    project, wait_until, *, users, hosts_each, workunits, seconds, pause_s=0.3
):
    """Let a mixed crowd finish that many workunits; returns the crowd."""
    seed = random.randrange(2**32)
    print("seed", seed)
    keys = project.keys(users, hosts_each)
    names = [f"w{number}_1" for number in range(workunits)]
    hosts = make_hosts(keys, seed=seed, behaviours=MIXED, pause_s=pause_s)
    specs = [
        make_spec(name, redundancy=PAIR, data=f"input of {name}".encode())
        for name in names
    ]
    project.engine.create_workunits(specs)
    with HostCrowd(project.server.url, hosts, spread_s=pause_s) as crowd:
        wait_until(lambda: len(project.outcomes.outcomes) == workunits, seconds)
    return crowd, names


def check_invariants(project, names):
    """Every workunit ended once and rightly; no user and no host had two of its copies."""
    for name in names:
        assert project.outcomes.calls[name] == 1
        assert project.outcomes.kind(name) is OutcomeKind.CANONICAL
        assert project.outcomes.bodies[name].endswith(f"\ninput of {name}".encode())
    handed = project.copies()
    assert len({(copy[0], copy[1]) for copy in handed}) == len(handed)
    assert len({(copy[0], copy[2]) for copy in handed}) == len(handed)
    counts = Counter(copy[0] for copy in handed)
    assert max(counts.values()) <= PAIR.max_total


@pytest.mark.timeout(400)
def test_dozens_of_hosts_of_every_kind_finish_all_work_once(project, wait_until):
    crowd, names = run_crowd(
        project, wait_until, users=20, hosts_each=2, workunits=60, seconds=360
    )
    check_invariants(project, names)
    assert crowd.report.calls > 60
    assert crowd.report.percentile(0.5) > 0
    assert len(crowd.hosts) > 40  # the clones' twins


def test_crowd_of_cheats_outvotes_nobody_alone(project, wait_until):
    """Negative control: a cheat's answer does come back, and is told from the others."""
    keys = project.keys(6)
    hosts = make_hosts(keys, seed=1, behaviours={Behaviour.CHEAT: 0.5}, pause_s=0.1)
    assert sum(host.behaviour is Behaviour.CHEAT for host in hosts) == 3
    project.engine.create_workunits([make_spec("w_1", redundancy=PAIR, data=b"in")])
    names = [f"w{number}_1" for number in range(20)]
    project.engine.create_workunits(
        [make_spec(name, redundancy=PAIR, data=b"in") for name in names]
    )
    with HostCrowd(project.server.url, hosts, threads=3):
        wait_until(lambda: len(project.outcomes.outcomes) == 21, 240)
    copies = [copy for name in names for copy in project.engine.status(name).results]
    assert (
        any(copy.outcome is not ResultOutcome.SUCCESS for copy in copies)
        or len(copies) > 40
    )
    assert all(body.endswith(b"\nin") for body in project.outcomes.bodies.values())


def test_same_seed_makes_the_same_hosts():
    keys = [f"k{n}" for n in range(40)]
    first, again = (make_hosts(keys, seed=3, behaviours=MIXED) for _ in range(2))
    assert [(h.behaviour, h.cpid) for h in first] == [
        (h.behaviour, h.cpid) for h in again
    ]
    kinds = Counter(host.behaviour for host in first)
    assert kinds[Behaviour.MORTAL] == 6
    assert len({host.cpid for host in first}) == 40


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_hundreds_of_hosts_finish_all_work_once(project, wait_until):
    crowd, names = run_crowd(
        project,
        wait_until,
        users=150,
        hosts_each=2,
        workunits=600,
        seconds=900,
        pause_s=5.0,
    )
    print(f"{crowd.report.calls} calls, p99 {crowd.report.percentile(0.99):.3f} s")
    check_invariants(project, names)
