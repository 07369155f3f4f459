"""Each fault on a played project: the doctor names its cause, and is content afterwards."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager

import pytest
from stock_bench import StockBench

from stoilo.core.types import Redundancy
from stoilo.server.engines.stock.installation.checks import examine
from stoilo.server.engines.stock.installation.install import install_project
from stoilo.server.engines.stock.installation.snapshot import read_snapshot
from stoilo.server.engines.stock.project.directory import read_project
from tests.support.engine import make_spec
from tests.support.mariadb import MariaServer
from tests.support.programs import ProgramSigner
from tests.support.stocktools.processes import DaemonProcesses
from tests.support.stocktools.project import make_fake_project

SINGLE = Redundancy(min_quorum=1, target_results=1)
LATER_S = 600
AROUND = {"disk project", "disk download", "disk upload"}  # of the machine under test

pytestmark = pytest.mark.slow  # each of BOINC's calls is a process


def diagnose(fake, clock=time.time):
    """Return what the doctor finds wrong with a played project."""
    project = read_project(fake.project.root)  # as it is now
    seen = read_snapshot(project, web=False, url=fake.database_url, clock=clock)
    wrong = [one for one in examine(seen) if one.grave]
    return {one.name: one.text for one in wrong if one.name not in AROUND}


def install(fake):
    key = fake.root / "keys" / "upload_private"
    key.write_text("upload\n")
    key.chmod(0o640)
    install_project(fake.root, ProgramSigner().offer(), url=fake.database_url)


class Site:
    """A project as it is installed, with processes for daemons and a server."""

    def __init__(self, bench, processes):
        self.bench = bench
        self.processes = processes
        self.root = bench.fake.root

    def failed(self):
        """Return what the doctor finds wrong: name → what it says."""
        return diagnose(self.bench.fake, self.bench.clock)

    def create(self, *names):
        specs = [make_spec(name, redundancy=SINGLE) for name in names]
        self.bench.engine.create_workunits(specs)

    def compute(self, *users):
        for user in users:
            for copy in self.bench.fetch(user):
                self.bench.finish(user, copy, b"x")

    def pass_time(self):
        """Let more time go by than any row waits; BOINC's rows were changed before it."""
        now = int(self.bench.clock())
        self.bench.daemons._database.run("UPDATE workunit SET mod_time = ?", now)
        self.bench.pass_time(LATER_S)


@pytest.fixture
def site(tmp_path, clock):
    url = f"sqlite:///{tmp_path}/boinc.sqlite"  # a reader of its file would break locks
    bench = StockBench(tmp_path / "p", clock, url, apps=())
    install(bench.fake)
    with DaemonProcesses.running(bench.fake.root) as processes:
        yield Site(bench, processes)
    bench.close()


@contextmanager
def broken(path, script=""):
    """Have another file in a file's place, or none, until the end of the block."""
    aside = path.with_name(f"{path.name}.aside")
    path.rename(aside)
    if script:
        path.write_text(script)
        path.chmod(0o755)
    yield aside
    path.unlink(missing_ok=True)
    aside.rename(path)


def test_project_without_a_fault_is_well(site):
    assert site.failed() == {}
    site.create("w_1")
    site.compute(1)
    site.bench.settle()
    assert site.failed() == {}
    assert site.bench.outcomes.kind("w_1") == "canonical"


def test_killed_daemon_is_named_with_its_last_words(site):
    site.processes.kill("transitioner.pid", "Duplicate entry 'w_1_0' for key 'name'")
    said = site.failed()
    assert set(said) == {"daemon transitioner"}
    assert "is gone" in said["daemon transitioner"]
    assert "Duplicate entry" in said["daemon transitioner"]
    site.processes.start()
    assert site.failed() == {}


def test_database_that_restarts_is_the_one_cause_until_it_is_back(tmp_path):
    with MariaServer("--join-cache-level=0") as server:
        fake = make_fake_project(tmp_path / "p", server.create_database(), apps=())
        install(fake)
        with DaemonProcesses.running(fake.root) as processes:
            server.kill()
            processes.kill("feeder.pid", "lost connection to the database")
            with (
                warnings.catch_warnings()
            ):  # the driver leaves a socket to the collector
                warnings.simplefilter("ignore", ResourceWarning)
                assert set(diagnose(fake)) == {"database", "socket"}
                gc.collect()
            server.start()
            assert set(diagnose(fake)) == {"daemon feeder", "socket"}
            processes.start()
            assert set(diagnose(fake)) == {"socket"}  # no server runs in this test


def test_create_work_that_stops_half_way_is_named(site):
    names = ["w_1", "w_2", "w_3"]
    half = (
        "#!/bin/sh\ncd {root}\n[ -e once ] && exit 1\ntouch once\n"
        'echo \'{{"rows": 1, "statements": 1}}\' > fault_create_work\nexec {aside} "$@"\n'
    )
    tool = site.root / "bin" / "create_work"
    script = half.format(root=site.root, aside=f"{tool}.aside")
    with broken(tool, script):
        site.create(*names)
        assert site.failed() == {}  # it may be a moment's trouble
        site.pass_time()
        assert site.failed()["backlog creation"].startswith("2 workunits wait")
    site.bench.settle()
    assert site.failed() == {}
    rows = site.bench.daemons._database.rows("SELECT name FROM workunit ORDER BY id")
    assert [row.name for row in rows] == names


def test_tool_that_is_not_there_is_named(site):
    with broken(site.root / "bin" / "create_work"):
        assert set(site.failed()) == {"tools"}
    assert site.failed() == {}


def test_name_that_somebody_else_took_is_named(site):
    now = int(site.bench.clock())
    row = {"name": "w_1", "transition_time": now + 9999, "appid": 1}
    site.bench.daemons._database.insert("workunit", [row])
    site.create("w_1", "w_2")
    said = site.failed()
    assert set(said) == {"names"}
    assert "w_1" in said["names"]


def test_stopped_project_is_the_cause_and_its_daemons_are_not_blamed(site):
    for name in ("stop_daemons", "stop_sched"):
        (site.root / name).write_text("<stop/>\n")
    site.processes.kill("feeder.pid")
    assert set(site.failed()) == {"stopped"}
    for name in ("stop_daemons", "stop_sched"):
        (site.root / name).unlink()
    site.processes.start()
    assert site.failed() == {}


def test_assimilator_that_is_slow_is_named(site):
    site.create("w_1")
    site.bench.daemons.assimilates = False
    site.compute(1)
    site.bench.settle()
    site.pass_time()
    assert set(site.failed()) == {"backlog assimilations"}
    site.bench.daemons.assimilates = True
    site.bench.settle()
    assert site.failed() == {}


def test_server_that_does_not_take_ends_is_named_and_boinc_is_not(site):
    site.bench.outcomes.refuse = 1
    site.create("w_1")
    site.compute(1)
    site.bench.settle()
    assert set(site.failed()) == {"backlog outcomes"}
    site.bench.restart()  # a start is a new chance
    site.bench.settle()
    assert site.failed() == {}


def test_server_that_is_away_is_named(site):
    site.bench.engine.close()
    assert set(site.failed()) == {"socket"}
    site.bench.engine = site.bench.open()
    assert site.failed() == {}


DISK = """
import sys
from pathlib import Path
from stoilo.server.engines.stock.installation.checks import examine
from stoilo.server.engines.stock.installation.snapshot import read_snapshot
from stoilo.server.engines.stock.project.directory import read_project
seen = read_snapshot(read_project(Path(sys.argv[1])), web=False, url=sys.argv[2])
print([one.text for one in examine(seen) if one.name == "disk upload"])
"""


def test_full_disk_is_named(site):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root mounts a disk of its own")
    words = [sys.executable, "-c", DISK, str(site.root), site.bench.fake.database_url]
    mount = f'mount -t tmpfs -o size=1m none {site.root}/upload && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount" in done.stderr:
        pytest.skip("mounts are forbidden here")
    assert "the disk is full" in done.stdout, done.stderr
