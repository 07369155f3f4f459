"""Unpacking: once, by one launcher at a time, and whole or not at all.

Whatever stops it, the next start finds either no tree or the whole tree, removes what was
left, and starts the verifier.
"""

import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter

import pytest

STRACE = shutil.which("strace")
needs_strace = pytest.mark.skipif(STRACE is None, reason="needs strace")
TRACE = re.compile(r"^(?:\d+ +)?(\w+)\(")


def recovers(slot):
    """Whether the next start runs the verifier and leaves nothing but its tree."""
    good = slot.starts()
    return good and sorted(path.name for path in slot.place.iterdir()) == sorted(
        [slot.verifier.tree, "lock"]
    )


def test_several_starting_at_once_unpack_once(slot):
    command = [STRACE or "true", "-f", "-e", "trace=renameat,renameat2"]
    if STRACE is None:
        pytest.skip("needs strace")
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": slot.path}
    running = [
        subprocess.Popen([*command, slot.launcher], env={}, **both) for _ in range(8)
    ]
    ends = [one.communicate() for one in running]
    assert all(out.startswith(b"argv ") for out, _ in ends)
    assert sum(said.count(b"rename") for _, said in ends) == 1
    assert recovers(slot)


def test_lock_of_another_is_waited_for(slot):
    slot.place.mkdir(parents=True, mode=0o700)
    slot.place.parent.chmod(0o700)
    with (slot.place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        timer = threading.Timer(0.3, fcntl.flock, (lock, fcntl.LOCK_UN))
        timer.start()
        assert slot.starts()
        timer.join()


def test_lock_that_is_never_released_is_told(make_slot, sanitized):
    slot = make_slot(program=sanitized)  # whose patience is short
    slot.place.mkdir(parents=True, mode=0o700)
    slot.place.parent.chmod(0o700)
    with (slot.place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert slot.refusal() == (1, "STO-X008")


def test_unpacked_tree_needs_no_lock(make_slot, sanitized):
    slot = make_slot(program=sanitized)
    assert slot.starts()
    with (slot.place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert slot.starts()


def test_leftovers_are_removed_and_nothing_else(slot):
    old = slot.place / f".{slot.verifier.tree}.0123456789abcdef.tmp"
    (old / "_internal" / "deep").mkdir(parents=True)
    for folder in (slot.place, slot.place.parent):
        folder.chmod(0o700)
    (old / "_internal" / "file").write_text("half")
    (old / "away").symlink_to(slot.project)
    (slot.place / "kept").write_text("")
    assert slot.starts()
    assert slot.leftovers() == []
    assert (slot.place / "kept").exists()
    assert (slot.project / "launcher").exists()  # the link was removed, not followed


def test_half_written_tree_under_the_final_name_is_not_run(slot):
    """No crash leaves one; whatever else does, it is compared like any other."""
    assert slot.starts()
    (slot.tree / "_internal/lib/large").unlink()
    assert slot.refusal() == (4, "STO-F006")


def test_read_only_place_is_told(slot):
    slot.place.mkdir(parents=True)
    for folder in (slot.place, slot.place.parent):
        folder.chmod(0o500)
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root to become somebody who may not write")
    for path in (slot.data, *slot.data.rglob("*")):
        os.chown(path, 65534, 65534)
    pass_through(slot.data)
    done = subprocess.run(
        [*command, slot.launcher], cwd=slot.path, capture_output=True, check=False
    )
    assert done.stdout == b""
    assert (done.returncode, done.stderr.split(b" ")[1]) == (1, b"STO-X008")


def pass_through(folder):
    """Let others reach `folder` through those above it."""
    for above in folder.parents:
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)


def has_own_disk():
    """Whether this machine lets us make a private mount namespace with a tmpfs."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m none /mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("room", [0, 4, 40, 400, 700])
@pytest.mark.skipif(not has_own_disk(), reason="needs root for a small disk")
def test_full_disk_is_told_and_nothing_is_left(slot, room):
    """With `room` KiB it fits nowhere; with 8 MiB, as a control, it does."""
    script = f"""
        mount -t tmpfs -o size=8m,mode=0755 none "$1" && mkdir -m 700 "$1/verifier" &&
        chmod 700 "$1" && head -c $((8192 - 4 * 3 - {room}))K /dev/zero > "$1/filler"
        "$2"; echo "status $?"; ls -A "$1/verifier"; rm "$1/filler"
        "$2" > "$1/started" && echo again && head -c 4 "$1/started"
    """
    slot.place.parent.mkdir()
    command = ["unshare", "-m", "sh", "-c", script, "sh", slot.place.parent]
    done = subprocess.run(
        [*command, slot.launcher], cwd=slot.path, capture_output=True, check=False
    )
    assert b"STO-X008" in done.stderr
    assert b"ENOSPC" in done.stderr
    said = done.stdout.decode().split()
    assert said[:2] == ["status", "1"]
    assert said[2:] in (["lock", "again", "argv"], ["again", "argv"])


@needs_strace
def test_every_file_and_directory_is_flushed_before_the_rename(slot):
    calls = trace(slot, "fsync,renameat,mkdirat,openat,close")
    names = [name for name, _ in calls]
    rename = next(i for i, (name, _) in enumerate(calls) if name.startswith("rename"))
    files = len([path for path in slot.tree.rglob("*") if path.is_file()])
    folders = len(list(slot.tree.rglob("*/"))) + 1
    assert names[:rename].count("fsync") == files + folders
    assert names[rename:].count("fsync") == 1  # the name itself


def trace(slot, calls, *options):
    """Run it under strace and return the names and lines of its own calls."""
    log = slot.data / "trace"
    what = ["-e", f"trace={calls}", *options]
    subprocess.run(
        [STRACE, "-o", log, *what, slot.launcher],
        cwd=slot.path,
        env={},
        capture_output=True,
        check=False,
    )
    text = log.read_text(errors="replace")
    text = text.split("execve(")[1] if "execve(" in text else text  # its own only
    found = [
        (match[1], line) for line in text.splitlines() if (match := TRACE.match(line))
    ]
    log.unlink()
    return found


def kinds_of_calls(slot):
    """Return how often each call is made until the verifier is started."""
    counts = Counter(name for name, _ in trace(slot, "all"))
    shutil.rmtree(slot.place.parent)
    assert set(WRITES) <= set(counts)
    return {name: count for name, count in counts.items() if name not in HARMLESS}


# Before the first of ours, or such that nothing can differ before and after them.
HARMLESS = {"brk", "arch_prctl", "set_tid_address", "set_robust_list", "rseq"} | {
    "prlimit64", "readlinkat", "getrandom", "mprotect", "rt_sigaction", "mmap", "munmap",
    "exit_group", "readlink", "prctl", "geteuid",
}  # fmt: skip


def strike(slot, name, number, fault):
    """Let the `number`-th call `name` fail or be the last; return what the launcher said."""
    options = ["-o", os.devnull, "-e", f"inject={name}:{fault}:when={number}"]
    return subprocess.run(
        [STRACE, *options, slot.launcher],
        cwd=slot.path,
        env={},
        capture_output=True,
        check=False,
        timeout=120,
    )


def places(counts, most):
    """Yield calls to strike at: all of a kind, or a sample with the first and last."""
    for name, count in sorted(counts.items()):
        numbers = range(1, count + 1)
        if count > most:
            numbers = sorted(
                {1, count, *random.Random(count).sample(numbers, most - 2)}
            )
        yield from ((name, number) for number in numbers)


def check_strike(slot, name, number, fault):
    done = strike(slot, name, number, fault)
    where = (name, number, fault, done)
    if "SIGKILL" in fault:
        assert done.stdout == b"", where
    elif done.stdout == b"":  # it gave up: with one of our codes
        assert done.returncode in (1, 4), where
        said = (b"stoilo-launcher: STO-F0", b"stoilo-launcher: STO-X008")
        assert done.stderr.startswith(said), where
    # What lies under the final name is whole: the next start compares it and runs it.
    assert recovers(slot), where
    shutil.rmtree(slot.place.parent)


WRITES = ("mkdirat", "write", "fchmod", "fsync", "renameat", "close")


@needs_strace
def test_kill_at_some_writes_leaves_nothing_half(slot):
    counts = kinds_of_calls(slot)
    for name, number in places({name: counts[name] for name in WRITES}, 3):
        check_strike(slot, name, number, "signal=SIGKILL")


@pytest.mark.slow
@needs_strace
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["signal=SIGKILL", "error=EIO", "error=ENOSPC"])
def test_no_fault_at_any_call_leaves_anything_half(slot, fault):
    for name, number in places(kinds_of_calls(slot), 8):
        check_strike(slot, name, number, fault)


@needs_strace
def test_control_a_tree_that_is_not_whole_would_be_seen(slot):
    """What `recovers` rests on: a launcher that skips a write is caught by the next."""
    strike(slot, "renameat", 1, "retval=0")  # says that it renamed, and did not
    assert not slot.tree.exists()
    assert recovers(slot)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_among_several_leaves_the_others_a_whole_tree(slot):
    moments = random.Random(6)
    for _ in range(20):
        running = [
            subprocess.Popen(
                [slot.launcher], cwd=slot.path, env={}, stdout=subprocess.PIPE
            )
            for _ in range(6)
        ]
        for one in running[::2]:
            time.sleep(moments.random() * 0.01)
            one.kill()
        said = [one.communicate()[0] for one in running]
        assert all(out.startswith(b"argv ") for out in said[1::2])
        assert recovers(slot)
        shutil.rmtree(slot.place.parent)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kill_at_random_moments_leaves_nothing_half(slot):
    moments = random.Random(5)
    for _ in range(60):
        process = subprocess.Popen(
            [slot.launcher], cwd=slot.path, env={}, stdout=subprocess.DEVNULL
        )
        time.sleep(moments.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert recovers(slot)
        shutil.rmtree(slot.place.parent)
