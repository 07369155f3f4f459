"""The supervisor: limits that name themselves, many runs at once, faults, leaks."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from stoilo.core.errors import InternalError
from stoilo.core.types import RunLayer, RunStatus
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.exchange import Exchange
from stoilo.sandbox.process.report import JailStatus
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail, zygote_command, zygote_environment


def children_of(pid):
    """Return the pids below `pid`, itself included."""
    found = [pid]
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it has just ended
        return found
    for task in tasks:
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            found += children_of(int(child))
    return found


def has_child(exchanges):
    """Return whether the zygote has said that the run's child exists."""
    return exchanges and exchanges[0]._child_exists


def wait_gone(pids, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(is_alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("import time; time.sleep(5)", "wall_s"),
        ("while True: pass", "cpu_s"),
        ("x = bytearray(300 << 20)", "memory_bytes"),
        ("for _ in range(9): print('x' * 999)", "output_bytes"),
        ("import os; os.write(4, b'\\x00' * 2 + b'\\xff' * 6)", "result_bytes"),
    ],
)
def test_limit_hit_names_itself(probe, source, limit):
    wall = 0.3 if limit == "wall_s" else None
    outcome = probe(source, cpu_s=1, wall_s=wall)
    assert (outcome.status, outcome.layer) == (RunStatus.KILLED, RunLayer.LIMITS)
    assert outcome.limit == limit


def test_program_within_every_limit_is_ok(probe):
    outcome = probe("x = bytearray(100 << 20)\nprint(len(x))")
    assert (outcome.status, outcome.output) == (RunStatus.OK, f"{100 << 20}\n")


def test_output_of_a_killed_program_is_kept_and_bounded(probe):
    outcome = probe("print('before')\nimport os\nos.fork()")
    assert outcome.output == "before\n"
    flood = probe("while True: print('x' * 999)")
    assert len(flood.output) == 8192


def test_killed_call_is_named(probe):
    probe("import os; os.fork()")
    assert (probe.report.status, probe.report.syscall) == (JailStatus.KILLED, "clone")


def test_large_request_reaches_the_child(probe):
    source = "#" + "x" * (20 << 20) + "\nprint('all')"
    assert probe(source).output == "all\n"


def test_request_that_is_not_read_does_not_hang(probe):
    source = "import os; os._exit(3)#" + "x" * (2 << 20)
    assert probe(source).status is RunStatus.USER_ERROR


def test_many_runs_at_once_keep_apart(probe):
    def one(number):
        report = probe.jail.run(
            encode_probe(
                "import time; begun = time.monotonic(); time.sleep(0.2)\n"
                f"print({number}, begun, time.monotonic())"
            ),
            probe.jail._level.default_limits(),
        )
        return [float(word) for word in report.output.split()]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(32)))
    assert [number for number, _, _ in answers] == list(range(32))
    assert any(a[1] < b[1] < a[2] for a in answers for b in answers)  # side by side


def test_one_run_killed_leaves_its_neighbours_alone(probe):
    limits = probe.jail._level.default_limits()

    slow = "import time; time.sleep(0.4); print('done')"
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(probe.jail.run, encode_probe(source), limits)
            for source in (slow, "import os; os.fork()")
        ]
    slow, killed = (run.result() for run in runs)
    assert (slow.output, killed.syscall) == (b"done\n", "clone")


def test_killed_zygote_is_replaced_at_the_next_run(pure):
    with Jail(pure, PROBE_JOB) as jail:
        first = jail.zygote_pid
        below = children_of(first)
        os.kill(first, signal.SIGKILL)
        assert wait_gone(below)
        report = jail.run(encode_probe("print(1)"), pure.default_limits())
        assert (report.output, jail.zygote_pid != first) == (b"1\n", True)


def test_zygote_killed_during_a_run_says_so_and_child_dies(pure, wait_until):
    with Jail(pure, PROBE_JOB) as jail:
        below, exchanges = [], []

        def kill():
            wait_until(lambda: has_child(exchanges))
            below.extend(children_of(jail.zygote_pid))
            os.kill(jail.zygote_pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        source = encode_probe("import time; time.sleep(30)")
        report = jail.run(source, pure.default_limits(), watch=exchanges.append)
        killer.join()
        assert (report.status, report.code) == (JailStatus.CRASHED, "STO-S005")
        assert len(below) >= 2
        assert wait_gone(below)


def test_stopped_zygote_is_given_up_and_replaced(pure, monkeypatch):
    monkeypatch.setattr("stoilo.sandbox.process.exchange.GRACE_S", 0.3)
    with Jail(pure, PROBE_JOB) as jail:
        stopped = children_of(jail.zygote_pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        request = encode_probe("print(1)")
        report = jail.run(request, pure.default_limits(), 0.3)
        assert report.code == "STO-S005"
        assert wait_gone(stopped)
        assert jail.run(request, pure.default_limits()).output == b"1\n"


SUPERVISOR = """
import sys, threading, time
from pathlib import Path
import msgspec
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail
level = load_level("pure")
level = msgspec.structs.replace(level, preload=())
jail = Jail(level, PROBE_JOB)
request = encode_probe("import time; print('up', flush=True); time.sleep(60)")
exchanges = []
arguments = {"args": (request, level.default_limits())}
arguments["kwargs"] = {"watch": exchanges.append}
threading.Thread(target=jail.run, **arguments).start()
while not (exchanges and exchanges[0]._child_exists):
    time.sleep(0.01)
print(jail.zygote_pid, flush=True)
"""


def test_supervisor_killed_leaves_nothing_behind():
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR],
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        zygote = int(supervisor.stdout.readline())
        below = children_of(zygote)
        supervisor.kill()
    assert len(below) >= 2
    assert wait_gone(below)


def count_descriptors(pid):
    """Count them where the kernel lets us look: only root may look into a zygote."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except PermissionError:
        assert os.geteuid() != 0
        return 0
    except OSError:  # a run's child that has just ended
        return 0


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_two_hundred_runs_leak_no_descriptor_process_or_memory(pure, wait_until):
    programs = ["print(1)", "import os; os.fork()", "1/0", "import os; os._exit(1)"]
    with Jail(pure, PROBE_JOB) as jail:
        limits = pure.default_limits()
        at_rest = len(children_of(jail.zygote_pid))

        def count():
            pids = ("self", *children_of(jail.zygote_pid))
            return sum(count_descriptors(pid) for pid in pids)

        for number in range(40):
            jail.run(encode_probe(programs[number % 4]), limits)
        wait_until(lambda: len(children_of(jail.zygote_pid)) == at_rest)
        before, pids = count(), children_of(jail.zygote_pid)
        memory = sum(map(resident, pids))
        for number in range(200):
            jail.run(encode_probe(programs[number % 4]), limits)
        # The zygote closes a run's lifeline after its report.
        wait_until(lambda: count() <= before)
        wait_until(lambda: children_of(jail.zygote_pid) == pids)
        assert sum(map(resident, pids)) - memory < 2 << 20


@pytest.mark.parametrize("niceness", [0, 5])
def test_runs_leave_the_processor_to_others_as_far_as_asked(pure, niceness):
    with Jail(pure, PROBE_JOB, niceness=niceness) as jail:
        nice = [
            os.getpriority(os.PRIO_PROCESS, pid) for pid in children_of(jail.zygote_pid)
        ]
    assert set(nice) == {os.getpriority(os.PRIO_PROCESS, 0) + niceness}


def test_zygote_starts_from_fixed_words_only(monkeypatch):
    monkeypatch.setenv("STOILO_SECRET", "s3cret")
    assert not {"STOILO_SECRET", "PATH", "HOME"} & set(zygote_environment())
    assert "-P" in zygote_command()
    assert "-s" in zygote_command()


def test_secret_of_the_environment_is_not_in_the_child(pure, monkeypatch):
    monkeypatch.setenv("STOILO_SECRET", "s3cret-marker")
    source = "import os; print(dict(os.environ))"
    plain = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert "s3cret-marker" in plain.stdout  # the control
    with Jail(pure, PROBE_JOB) as jail:
        report = jail.run(encode_probe(source), pure.default_limits())
    assert b"s3cret-marker" not in report.output
    assert b"PYTHONHASHSEED" in report.output


DESCRIPTORS = """
import os
for number in range(3, 300):
    try:
        os.lseek(number, 0, 1)
        print("REACHED", number)
    except OSError as error:
        if error.errno == 29 and number not in (3, 4):
            print("PIPE", number)
"""


def test_inherited_descriptor_is_not_in_the_child(pure, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)  # noqa: FBT003
    try:
        plain = subprocess.run(
            [sys.executable, "-c", DESCRIPTORS],
            pass_fds=[descriptor],
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"REACHED {descriptor}" in plain.stdout  # the control
        with Jail(pure, PROBE_JOB) as jail:
            report = jail.run(encode_probe(DESCRIPTORS), pure.default_limits())
    finally:
        os.close(descriptor)
    assert report.output == b""


def test_answer_that_is_no_message_of_the_zygote_is_our_fault(pure):
    def talks_nonsense():
        code = "import socket; s = socket.socket(fileno=0); s.recv(99); s.send(b'?')"
        return [sys.executable, "-c", code]

    with pytest.raises(Exception, match="STO-S003"):
        Jail(pure, PROBE_JOB, command=talks_nonsense)


def test_unknown_preload_is_a_usage_error(pure):
    with pytest.raises(Exception, match="STO-S030"):
        Jail(pure, PROBE_JOB, preload=("no_such_module_anywhere",))


def test_forged_result_does_not_decide(probe):
    forged = "import os; os.write(4, (2).to_bytes(8, 'big') + b'ok')"
    outcome = probe(forged)
    assert (outcome.status, outcome.layer) == (RunStatus.USER_ERROR, RunLayer.RESULT)


def test_missing_libseccomp_is_named(pure, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    unseen = msgspec.structs.replace(pure, digest="another")
    with pytest.raises(InternalError, match="libseccomp") as caught:
        Jail(unseen, PROBE_JOB)
    assert caught.value.code == "STO-S003"


def test_hash_seed_is_the_same_in_every_zygote(pure):
    answers = set()
    for _ in range(2):
        with Jail(pure, PROBE_JOB) as jail:
            request = encode_probe("print(hash('stoilo'), set('abcdef'))")
            answers.add(jail.run(request, pure.default_limits()).output)
    assert len(answers) == 1


def test_interrupted_caller_takes_the_child_with_it(pure, wait_until):
    with Jail(pure, PROBE_JOB) as jail:
        limits = pure.default_limits()
        before = children_of(jail.zygote_pid)
        request = encode_probe("import time; time.sleep(60)")
        with Exchange(request, limits, 60.0) as exchange:
            exchange.begin(jail._zygote.control)
            os.write(exchange._to_child, request)
            below = wait_until(lambda: set(children_of(jail.zygote_pid)) - set(before))
        assert wait_gone(below)


def test_run_cancelled_from_another_thread_says_so(pure):
    request = encode_probe("import time; time.sleep(60)")

    def cancel_later(exchange):
        threading.Timer(0.3, exchange.cancel).start()

    with Jail(pure, PROBE_JOB) as jail:
        report = jail.run(request, pure.default_limits(), watch=cancel_later)
        assert (report.status, report.code) == (JailStatus.CRASHED, "STO-S008")
        assert report.usage.wall_s < 50  # the program would take 60 s
        early = jail.run(request, pure.default_limits(), watch=Exchange.cancel)
        assert (early.status, early.code) == (JailStatus.CRASHED, "STO-S008")
        assert jail.run(encode_probe("print(1)"), pure.default_limits()).output


def test_closed_jail_leaves_no_process(pure):
    jail = Jail(pure, PROBE_JOB)
    below = children_of(jail.zygote_pid)
    jail.close()
    assert wait_gone(below)


@pytest.mark.slow
def test_zygotes_killed_at_random_lose_no_later_run_and_leave_nothing(pure):
    chance = random.Random(20)
    request = encode_probe("import time; time.sleep(0.01); print('done')")
    limits = pure.default_limits()
    codes, seen, stop = [], set(), threading.Event()
    with Jail(pure, PROBE_JOB) as jail:

        def work():
            while not stop.is_set():
                report = jail.run(request, limits)
                codes.append((report.code, report.output))

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        try:
            for _ in range(50):
                time.sleep(chance.random() * 0.1)
                below = children_of(jail.zygote_pid)
                seen.update(below)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(below), signal.SIGKILL)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        assert jail.run(request, limits).output == b"done\n"
    assert {code for code, _ in codes} <= {"", "STO-S005"}
    assert all(output == b"done\n" for code, output in codes if not code)
    assert wait_gone(seen)
