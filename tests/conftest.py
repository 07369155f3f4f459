"""For every test: whatever a session starts or puts into the temporary directory goes."""

import gc
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from stoilo.sandbox.process.supervisor import pin_instructions
from tests.support.compiledsql import share_compiled_sql
from tests.support.mariadb import MariaServer, find_mariadbd

os.environ.update(
    pin_instructions()
)  # what tests compute themselves is what a jail gives
# A slow machine is no failure; time is the bench's affair.
brief = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("brief", brief)
settings.register_profile("thorough", brief, max_examples=300)  # in `make slow`
settings.load_profile("brief")
share_compiled_sql()
SLOW_S = 900  # most that a slow test takes, where it says nothing else
GRACE_S = 60.0  # for what dies with its parent: the kernel's signal takes a moment
BESIDE_ANOTHER = "PYTEST_XDIST_WORKER" in os.environ  # `-n 2`
INSTALLABLE = re.compile(r"needs (strace|gcc|binutils|libpython|mariadb|boinc-client)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):  # noqa: ARG001 - pytest calls it by name
    """In CI nothing is skipped for what the project's own scripts install."""
    report = yield
    if (
        report.skipped
        and os.environ.get("CI")
        and INSTALLABLE.search(str(report.longrepr))
    ):
        report.outcome = "failed"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs):
    from tests.support.sidebyside import give_reapers  # noqa: PLC0415 - only then

    give_reapers(specs)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from tests.support.sidebyside import FilesScheduling  # noqa: PLC0415 - only then

    return FilesScheduling(config, log)


def pytest_collection_modifyitems(items):
    """A slow test without a limit of its own may take as long as on a busy machine.

    Beside another session, those come first that wait, then those that take minutes.
    """
    if BESIDE_ANOTHER:
        from tests.support.sidebyside import turn_of  # noqa: PLC0415 - only then

        items.sort(key=lambda item: turn_of(item.nodeid))
    for item in items:
        limited = item.get_closest_marker("timeout")
        if item.get_closest_marker("slow") and limited is None:
            item.add_marker(pytest.mark.timeout(SLOW_S))


def pytest_collection_finish():
    """Leave what is there now for good out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


def read_stat(pid):
    """Return state, parent and start time (clock ticks since boot), or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[19])


def read_command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (OSError, UnicodeDecodeError):
        return [""]


def survivors(since):
    """Return the commands of our descendants, and of our orphans begun after `since`.

    An orphan goes to the nearest reaper above it, which is one of our own ancestors; our
    parent where there are other sessions beside this one (`tests.support.reaper`).
    """
    stats = {
        int(path.name): stat
        for path in Path("/proc").glob("[0-9]*")
        if (stat := read_stat(path.name)) and stat[0] not in "ZX"
    }

    def line_of(pid):
        while pid in stats:
            yield (pid := stats[pid][1])

    above = {os.getppid()} if BESIDE_ANOTHER else set(line_of(os.getpid()))

    def is_ours(pid):
        _, parent, start = stats[pid]
        if parent in above and start >= since and pid != os.getpid():
            return read_command(pid)[0] == sys.executable
        return os.getpid() in line_of(pid)

    return {pid: " ".join(read_command(pid))[:300] for pid in stats if is_ours(pid)}


@pytest.fixture(scope="session")
def own_temporary_directory(tmp_path_factory):
    """Give the session, and what it starts, a temporary directory of its own.

    Its path is short, for unix sockets, and open, for tests that become another user.
    """
    tmp_path_factory.getbasetemp()  # pytest's own stays where it is
    with pytest.MonkeyPatch.context() as patch:
        folder = Path(tempfile.mkdtemp(prefix="st-"))
        folder.chmod(0o755)
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder
    shutil.rmtree(folder)


@pytest.fixture
def open_folder(own_temporary_directory):
    """Return a folder that any user may enter, unlike `tmp_path` below its parents."""
    folder = Path(tempfile.mkdtemp(dir=own_temporary_directory))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(own_temporary_directory):
    """Fail at the end when processes or temporary files of ours survive."""
    since = read_stat(os.getpid())[2]
    yield
    end = time.monotonic() + GRACE_S
    while (left := survivors(since)) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == {}
    for folder in own_temporary_directory.glob("torchinductor_*"):
        shutil.rmtree(folder)  # torch makes it with the first optimiser of a process
    assert list(own_temporary_directory.iterdir()) == []


@pytest.fixture(scope="session")
def mariadb(own_temporary_directory):  # noqa: ARG001 - it lies in there
    """A MariaDB of the session's own; `create_database` makes one for a test."""
    if find_mariadbd() is None:
        pytest.skip("needs mariadb-server-core: apt-get install mariadb-server-core")
    with MariaServer() as server:
        yield server


def poll_until(condition, seconds=120.0):
    """Return the first true answer of `condition`; fail when none comes in `seconds`."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, f"after {seconds} s: {answer!r}"
        time.sleep(0.01)
    return answer


@pytest.fixture(scope="session")
def wait_until():
    return poll_until


@pytest.fixture(scope="session")
def find_survivors():
    return survivors
