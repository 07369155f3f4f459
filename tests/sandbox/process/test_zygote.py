"""The zygote: refuses by name, is clean, closes every jail the same way."""

import dataclasses
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stoilo.core.errors import PolicyRefusal
from stoilo.core.types import RunStatus
from stoilo.sandbox.kernel.mechanisms import KernelHost, Mechanism, find_missing
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail, zygote_command
from tests.support.openpython import find_open_python, library_paths

WITHOUT = """
from stoilo.sandbox.kernel.mechanisms import KernelHost
from stoilo.sandbox.process.zygote import main

class Without(KernelHost):
    def has(self, mechanism):
        return mechanism.value != {name!r} and super().has(mechanism)

main(host=Without())
"""


def command_without(mechanism):
    """Return a zygote command whose host lacks one mechanism."""
    source = WITHOUT.format(name=mechanism)
    return lambda: [sys.executable, "-s", "-P", "-c", source]


@pytest.mark.parametrize("mechanism", [m.value for m in Mechanism])
def test_missing_mechanism_refuses_and_is_named(pure, mechanism):
    with pytest.raises(PolicyRefusal, match=mechanism) as caught:
        Jail(pure, PROBE_JOB, command=command_without(mechanism))
    assert (caught.value.code, caught.value.exit_code) == ("STO-S002", 3)


def test_nothing_missing_starts_with_the_same_command(pure):
    with Jail(pure, PROBE_JOB, command=command_without("none")) as jail:
        assert "seccomp" in jail.layers


def test_this_host_lacks_nothing():
    assert find_missing(KernelHost()) == ()


BROKEN = """
from stoilo.sandbox.kernel import {module}
def fail(*arguments, **named):
    raise OSError(1, "switched off by a test")
{module}.{function} = fail
from stoilo.sandbox.process.zygote import main
main()
"""


@pytest.mark.parametrize(
    ("module", "function", "mechanism"),
    [
        ("calls", "restrict_self", "landlock"),
        ("calls", "load_filter", "seccomp"),
        ("mechanisms", "apply_limits", "rlimits"),
        ("mechanisms", "drop_identity", "non_root_uid"),
    ],
)
def test_mechanism_that_fails_in_the_child_refuses(pure, module, function, mechanism):
    source = BROKEN.format(module=module, function=function)
    with Jail(
        pure, PROBE_JOB, command=lambda: [sys.executable, "-s", "-P", "-c", source]
    ) as jail:
        report = jail.run(encode_probe("print(1)"), pure.default_limits())
    assert (report.status.value, report.output) == ("refused", b"")
    assert mechanism in report.detail


def test_switches_in_the_environment_change_nothing(pure, monkeypatch):
    for name in ("STOILO_NO_JAIL", "STOILO_SANDBOX", "PYTHONINSPECT", "PYTHONPATH"):
        monkeypatch.setenv(name, "1")
    with Jail(pure, PROBE_JOB) as jail:
        report = jail.run(encode_probe("import os; os.fork()"), pure.default_limits())
    assert report.syscall == "clone"


def read_status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {k: v.split() for k, _, v in (line.partition(":") for line in lines)}


def begin_run(jail, request, limits):
    """Start a run in a thread; returns the thread, its report to be, and its exchange."""
    reports, exchanges = [], []
    run = threading.Thread(
        target=lambda: reports.append(jail.run(request, limits, watch=exchanges.append))
    )
    run.start()
    return run, reports, exchanges


def test_kernel_says_that_the_child_is_jailed(pure, wait_until):
    with Jail(pure, PROBE_JOB) as jail:
        at_rest = set(children(jail.zygote_pid))
        request = encode_probe("import time; time.sleep(60)")
        run, _, exchanges = begin_run(jail, request, pure.default_limits())
        (child,) = wait_until(lambda: set(children(jail.zygote_pid)) - at_rest)
        wait_until(lambda: read_status(child)["Seccomp_filters"] == ["2"])
        status, sid = read_status(child), os.getsid(child)
        limits = Path(f"/proc/{child}/limits").read_text()
        exchanges[0].cancel()
        run.join()
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])
    assert set(status["CapEff"] + status["CapPrm"] + status["CapBnd"]) == {"0" * 16}
    assert "0" not in status["Uid"] + status["Gid"]
    assert (status["Groups"], status["Threads"]) == ([], ["1"])
    assert sid == child
    assert any(
        line.split()[3:6] == ["size", "0", "0"] and "core" in line
        for line in limits.splitlines()
    )


def test_zygote_has_one_thread_and_no_file_of_the_supervisor(pure, tmp_path):
    with (tmp_path / "open").open("w") as file, Jail(pure, PROBE_JOB) as jail:
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003
        folder = Path(f"/proc/{jail.zygote_pid}/fd")
        links = [str(entry.readlink()) for entry in folder.iterdir()]
        assert read_status(jail.zygote_pid)["Threads"] == ["1"]
    assert str(tmp_path / "open") not in links


ORDINARY = """
import socket, sys
sys.path[:0] = {paths!r}
from pathlib import Path
import msgspec
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail
level = load_level("pure")
level = msgspec.structs.replace(level, preload=())
start = "import sys; sys.path[:0] = {paths!r}\\n"
start += "from stoilo.sandbox.process.zygote import main; main()"
on_the_way = socket.socketpair()
for _ in range(50):  # as of other programs of the user; an own uid would not see them
    socket.send_fds(on_the_way[0], [b"x"], [0])
with Jail(level, PROBE_JOB, command=lambda: [sys.executable, "-s", "-c", start]) as jail:
    for source in ("print(1)", "import os; os.fork()", "open('/etc/passwd')"):
        report = jail.run(encode_probe(source), level.default_limits())
        print(report.status.value, report.syscall or report.output.decode().strip())
"""


def as_ordinary_user():
    """Return the words that run a program as one, and its interpreter."""
    if os.geteuid() != 0:
        return [sys.executable]
    python, setpriv = find_open_python(), shutil.which("setpriv")
    if python is None or setpriv is None:
        pytest.skip("no interpreter that another user may run")
    return [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", python]


def test_jail_works_for_an_ordinary_user_with_descriptors_on_the_way():
    paths = library_paths()
    source = ORDINARY.format(paths=paths)
    done = subprocess.run(
        [*as_ordinary_user(), "-c", source],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert [line.strip() for line in done.stdout.splitlines()] == [
        "finished 1",
        "killed clone",
        "finished",
    ], done.stderr


def test_threads_are_let_through_where_the_run_may_have_them(threads):
    source = "import threading\nt = threading.Thread(target=print, args=('in',))\n"
    source += "t.start(); t.join()"
    assert threads(source, "threading", threads=4).output == "in\n"
    assert threads(source, "threading", threads=1).status is RunStatus.USER_ERROR


def test_threads_are_bounded_for_a_uid_of_its_own(threads):
    if os.geteuid() != 0:
        pytest.skip("the uid is shared: memory bounds threads there")
    source = "import threading, time\nn = 0\ntry:\n for n in range(64):\n"
    source += "  threading.Thread(target=time.sleep, args=(1,), daemon=True).start()\n"
    source += "except RuntimeError: print(n)\nimport os; os._exit(0)"
    outcome = threads(source, "threading", threads=4)
    assert int(outcome.output) < 2 * 4


def test_fork_stays_forbidden_with_threads(threads):
    threads("import os; os.fork()", threads=4)
    assert threads.report.syscall == "clone"


MULTIPLIED_TICKS = 40  # of user time: the products have begun


def read_cpu_ticks(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


MATMUL = """
import numpy, time
a = numpy.ones((600, 600))
while True:
    a @ a
"""


@pytest.mark.parametrize("count", [1, 2])
def test_linear_algebra_uses_as_many_threads_as_the_run_may_have(
    threads, count, numeric, wait_until
):
    before = set(children(threads.jail.zygote_pid))
    limits = dataclasses.replace(numeric.default_limits(), threads=count)
    request = encode_probe(MATMUL, ("numpy",))
    run, _, exchanges = begin_run(threads.jail, request, limits)
    (child,) = wait_until(lambda: set(children(threads.jail.zygote_pid)) - before)
    wait_until(lambda: read_cpu_ticks(child) >= MULTIPLIED_TICKS)
    found = read_status(child)["Threads"]
    exchanges[0].cancel()
    run.join()
    assert found == [str(count)]


def children(pid):
    """Return every pid below `pid`."""
    found = []
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended
        below = []
    for child in below:
        found += [int(child), *children(child)]
    return found


def is_gone(pid):
    try:
        return "Z" in read_status(pid)["State"]
    except OSError:
        return True


WITHOUT_NAMESPACES = """
from stoilo.sandbox.kernel import mechanisms
from stoilo.sandbox.process.zygote import main
mechanisms.enter_namespaces = lambda: ()
main()
"""


def test_child_dies_with_its_zygote_without_any_namespace(pure, wait_until):
    def bare():
        return [sys.executable, "-s", "-P", "-c", WITHOUT_NAMESPACES]

    with Jail(pure, PROBE_JOB, command=bare) as jail:
        assert not any(name.startswith("namespace") for name in jail.layers)
        request = encode_probe("import time; time.sleep(30)")
        run, reports, exchanges = begin_run(jail, request, pure.default_limits())
        wait_until(lambda: exchanges and exchanges[0]._child_exists)
        (child,) = children(jail.zygote_pid)
        os.kill(jail.zygote_pid, 9)
        run.join(60)
        assert [report.code for report in reports] == ["STO-S005"]
        wait_until(lambda: is_gone(child))


def test_jail_without_namespaces_still_stops_everything(pure):
    def bare():
        return [sys.executable, "-s", "-P", "-c", WITHOUT_NAMESPACES]

    with Jail(pure, PROBE_JOB, command=bare) as jail:
        limits = pure.default_limits()
        assert jail.run(encode_probe("import os; os.fork()"), limits).syscall == "clone"
        killed = jail.run(encode_probe("import os; os.kill(os.getppid(), 9)"), limits)
        assert killed.syscall == "kill"


ROOT_PROGRAM = """
import errno, os
from stoilo.sandbox.kernel import mechanisms
entered = mechanisms.enter_namespaces()
print("before", len(os.listdir("/")) > 0)
if "mount" in entered and mechanisms.empty_root():
    print("after", os.listdir("/"))
else:
    print("after []")
"""


def test_empty_root_holds_nothing():
    done = subprocess.run(
        [sys.executable, "-c", ROOT_PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["before True", "after []"]


ADDR_NO_RANDOMIZE = 0x0040000


def read_personality(pid):
    return int(Path(f"/proc/{pid}/personality").read_text(), 16)


@pytest.mark.skipif(shutil.which("setarch") is None, reason="needs setarch")
def test_execution_domain_of_the_caller_does_not_reach_the_zygote(pure):
    """It can switch address randomisation off, or make readable memory executable."""
    quirky = ["setarch", "--addr-no-randomize"]
    shown = (
        "from pathlib import Path; print(Path('/proc/self/personality').read_text())"
    )
    plain = subprocess.run(
        [*quirky, sys.executable, "-c", shown], capture_output=True, check=True
    )
    assert int(plain.stdout, 16) & ADDR_NO_RANDOMIZE  # the control
    with Jail(pure, PROBE_JOB, command=lambda: [*quirky, *zygote_command()]) as jail:
        pids = {jail.zygote_pid, *children(jail.zygote_pid)}
        assert {read_personality(pid) for pid in pids} == {0}
