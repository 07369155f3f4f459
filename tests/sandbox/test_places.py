"""Who may start a jail where: root, an ordinary user, in and out of user namespaces.

Each place runs the same program: the self-test of the mechanisms that depend on who one is.
"""

import os
import shutil
import subprocess

import pytest

from tests.support.openpython import ROOT, find_open_python, library_paths

PROGRAM = """
import sys
sys.path[:0] = {paths!r}
from stoilo.policies.levels import load_level
from stoilo.sandbox.suite import selftest
start = "import sys; sys.path[:0] = {paths!r}\\n"
def command(entry):
    return lambda: [sys.executable, "-s", "-c", start + entry]
only = ("non_root_uid", "not_dumpable", "no_new_privs", "seccomp", "landlock")
rows = selftest.run_selftest(
    load_level("pure"),
    zygote=command("from stoilo.sandbox.process.zygote import main; main()"),
    trials=command(selftest.TRIALS_ENTRY),
    only=only,
)
for row in rows:
    print(row.mechanism, row.state.value, row.verdict.value, sep=": ")
"""
AS_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
AS_FAKE_ROOT = ["unshare", "--user", "--map-root-user"]
AS_ANOTHER = ["unshare", "--user", "--map-user=1000"]
CONTAINER = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev"]
CONTAINER += ["--proc", "/proc", "--tmpfs", "/tmp"]
CONTAINER += ["--ro-bind", str(ROOT), str(ROOT), "--uid"]  # it may lie in /tmp
HELD_ALONE = {
    "no_new_privs"
}  # no set-uid program works in a container: not tried there


def run_at(*place):
    """Return the verdict of each mechanism at `place`."""
    python = find_open_python()
    if python is None or not all(map(shutil.which, {"setpriv", place[0]} - {""})):
        pytest.skip("no interpreter that another user may run, or no tool to get there")
    if subprocess.run([*place, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host does not allow it")
    paths = library_paths()
    done = subprocess.run(
        [*place, python, "-c", PROGRAM.format(paths=paths)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd="/",
    )
    rows = [line.split(": ") for line in done.stdout.splitlines()]
    assert rows, done.stderr[-2000:]
    return {name: (state, verdict) for name, state, verdict in rows}


def held(rows):
    return {n for n, (state, v) in rows.items() if (state, v) == ("active", "held")}


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@as_root
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(["env"], id="root"),
        pytest.param(AS_USER, id="an ordinary user"),
    ],
)
def test_jail_holds_outside_every_container(place):
    rows = run_at(*place)
    assert held(rows) == set(rows)


@as_root
@pytest.mark.parametrize(
    "place",
    [
        pytest.param([*AS_USER, *AS_FAKE_ROOT], id="as root of a user namespace"),
        pytest.param([*AS_USER, *AS_ANOTHER], id="as another user of one"),
        pytest.param([*AS_USER, *CONTAINER, "0"], id="as root of a container"),
        pytest.param([*AS_USER, *CONTAINER, "1000"], id="as a user of a container"),
    ],
)
def test_jail_holds_for_an_ordinary_user_in_a_user_namespace(place):
    rows = run_at(*place)
    assert set(rows) - held(rows) <= HELD_ALONE
    assert {state for state, _ in rows.values()} == {"active"}


@as_root
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(AS_FAKE_ROOT, id="as root"),
        pytest.param(AS_ANOTHER, id="as another user"),
        pytest.param([*CONTAINER, "1000"], id="as a user of a container"),
    ],
)
def test_root_under_another_name_is_refused(place):
    """Its files stay root's own, and nothing inside can change that."""
    assert run_at(*place)["non_root_uid"] == ("missing", "missing")


BOMB = """
import sys
sys.path[:0] = {paths!r}
import dataclasses, msgspec
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail
level = msgspec.structs.replace(load_level("numeric"), preload=())
start = "import sys; sys.path[:0] = {paths!r}\\n"
start += "from stoilo.sandbox.process.zygote import main; main()"
source = '''
import os, threading, time
threading.stack_size(65536)
begun = 0
try:
    for begun in range(2000):
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
except RuntimeError:
    print(begun)
os._exit(0)
'''
limits = dataclasses.replace(level.default_limits(), threads=4, memory_bytes=4 << 30)
command = lambda: [sys.executable, "-s", "-c", start]
with Jail(level, PROBE_JOB, preload=("threading",), command=command) as jail:
    print("alone" if "namespace_user" in jail.layers else "shared")
    print(jail.run(encode_probe(source, ("threading",)), limits).output.decode())
"""


@as_root
def test_threads_of_an_ordinary_user_are_bounded_in_a_user_namespace():
    python = find_open_python()
    if python is None or shutil.which("setpriv") is None:
        pytest.skip("no interpreter that another user may run")
    paths = library_paths()
    command = [*AS_USER, python, "-c", BOMB.format(paths=paths)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, cwd="/"
    )
    where, *begun = done.stdout.split()
    if where == "shared":
        pytest.skip("this host gives an ordinary user no namespace")
    assert begun, done.stderr
    assert 4 <= int(begun[0]) < 300
