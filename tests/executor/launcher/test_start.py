"""In what state the verifier is started, and by what it cannot be told."""

import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest


def lines(done, name):
    """Return what the stand-in said about `name`."""
    # Forked for `preexec_fn`, gRPC's poller of this process may complain before the exec.
    said = [one for one in done.stderr.splitlines() if b"ev_epoll1_linux" not in one]
    assert said == []
    words = (line.split(" ", 1) for line in done.stdout.decode().splitlines())
    return [rest for kind, rest in words if kind == name]


def test_verifier_starts_from_the_volunteers_own_directory(slot):
    done = slot.run()
    program = str(slot.tree / "stoilo-verifier")
    assert lines(done, "argv") == [program, f"--launcher={slot.launcher}"]
    assert lines(done, "cwd") == [str(slot.path)]
    assert done.returncode == 0


def test_status_is_the_verifiers(slot):
    assert slot.run("--version").returncode == 5


def test_only_allowed_words_arrive(slot):
    words = ["--root=/x", "--explain", "", "--launcher=/y", "--self-check", "-x", "--"]
    assert lines(slot.run(*words), "argv")[2:] == ["--explain", "--self-check"]


def test_many_words_end_without_harm(slot):
    given = lines(slot.run(*["--explain"] * 5000), "argv")[2:]
    assert set(given) == {"--explain"}
    assert len(given) < 10


def test_no_words_at_all_not_even_a_name(slot):
    code = (
        "import ctypes, sys; nothing = (ctypes.c_char_p * 1)(None);"
        "ctypes.CDLL(None).execve(sys.argv[1].encode(), nothing, nothing)"
    )
    command = [sys.executable, "-c", code, slot.launcher]
    done = subprocess.run(command, cwd=slot.path, capture_output=True, check=False)
    assert lines(done, "argv")[1] == f"--launcher={slot.launcher}"


def test_environment_is_replaced(slot, tmp_path):
    hostile = {
        "LD_PRELOAD": "/tmp/x.so",
        "LD_LIBRARY_PATH": ".",
        "PYTHONPATH": ".",
        "GCONV_PATH": ".",
        "PATH": ".",
        "HOME": str(tmp_path),
    }
    assert lines(slot.run(env=hostile), "env") == [
        "PATH=/usr/bin:/bin",
        "LANG=C.UTF-8",
        "TZ=UTC",
        f"HOME={tmp_path}",
    ]


@pytest.mark.parametrize("home", ["", "relative", "/nowhere", "/dev/null", "/" * 5000])
def test_home_that_is_no_own_directory_is_left_out(slot, home):
    assert len(lines(slot.run(env={"HOME": home}), "env")) == 3


def test_huge_environment_changes_nothing(slot):
    many = {f"NAME_{number}": "x" * 10_000 for number in range(150)}
    many["GLIBC_TUNABLES"] = "glibc.malloc.mxfast=" * 5000
    assert len(lines(slot.run(env=many), "env")) == 3


def test_descriptors_beyond_the_streams_are_closed(slot, tmp_path):
    with (tmp_path / "secret").open("w") as file:
        high = os.dup2(file.fileno(), 900)
        done = slot.run(pass_fds=[file.fileno(), high])
        os.close(high)
    assert lines(done, "fd") == ["0", "1", "2"]


@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "0<&- 2>&-"])
def test_closed_streams_are_opened_to_nothing(slot, closed):
    command = ["sh", "-c", f'exec "$1" {closed}', "sh", slot.launcher]
    done = subprocess.run(command, cwd=slot.path, capture_output=True, check=False)
    assert lines(done, "fd") == ["0", "1", "2"]


def test_no_file_of_ours_becomes_a_closed_stream(slot):
    """A refusal with every stream closed writes into no file that was opened since."""
    (slot.project / "stoilo-verifier.tar").write_bytes(b"")
    command = ["sh", "-c", 'exec "$1" 0<&- 1>&- 2>&-', "sh", slot.launcher]
    done = subprocess.run(command, cwd=slot.path, check=False)
    assert done.returncode == 4
    assert (slot.place / "lock").read_bytes() == b""


def test_refusal_that_nobody_reads_has_its_status(slot):
    (slot.project / "stoilo-verifier.tar").write_bytes(b"")
    reader, writer = os.pipe()
    os.close(reader)
    done = slot.run(stderr=writer)
    os.close(writer)
    assert done.returncode == 4


def test_signals_mask_limits_and_umask_are_reset(slot):
    def spoil():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        os.umask(0)

    done = slot.run(preexec_fn=spoil)
    assert lines(done, "blocked") + lines(done, "ignored") == []
    assert lines(done, "core") == ["0"]
    assert lines(done, "umask") == ["077"]


def test_setuid_program_refuses_to_run(slot):
    if os.geteuid() != 0:
        pytest.skip("needs root to make a program of somebody else")
    os.chown(slot.launcher, 65534, 65534)
    slot.launcher.chmod(0o6755)
    assert slot.refusal() == (1, "STO-F059")


def test_program_that_cannot_run_is_told(make_slot, pack_tree, verifier_tree, tmp_path):
    broken = shutil.copytree(verifier_tree, tmp_path / "broken")
    (broken / "stoilo-verifier").write_bytes(b"no program")
    assert make_slot(pack_tree(broken)).refusal() == (1, "STO-F059")
