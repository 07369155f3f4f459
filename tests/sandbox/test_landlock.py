"""Landlock alone, seccomp off: what it denies by itself."""

import errno
import os
import signal
import socket

import pytest

from stoilo.sandbox import landlock, libc


def in_domain(work):
    """Run `work` in a forked child closed by Landlock only; returns its errno or 0."""
    pid = os.fork()
    if pid == 0:
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict_self(landlock.create_empty_ruleset(landlock.detect_abi()))
        os._exit(error_of(work))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def error_of(work):
    try:
        work()
    except OSError as error:
        return error.errno
    return 0


def connect_to(port):
    with socket.socket() as client:
        client.connect(("127.0.0.1", port))


def test_reading_a_file_is_denied_and_works_outside():
    def work():
        return os.open("/etc/passwd", os.O_RDONLY)

    assert (error_of(work), in_domain(work)) == (0, errno.EACCES)


def test_making_a_file_is_denied_and_works_outside(tmp_path):
    def work():
        return os.open(tmp_path / "made", os.O_CREAT | os.O_WRONLY)

    assert (error_of(work), in_domain(work)) == (0, errno.EACCES)


def test_tcp_connect_is_denied_and_works_outside():
    if landlock.detect_abi() < landlock._NET_ABI:
        pytest.skip("this kernel's Landlock knows no network")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert error_of(lambda: connect_to(port)) == 0
        assert in_domain(lambda: connect_to(port)) == errno.EACCES


def test_signal_to_the_parent_is_denied_and_works_outside():
    if landlock.detect_abi() < landlock._SCOPE_ABI:
        pytest.skip("this kernel's Landlock has no scopes")

    def work():
        os.kill(os.getppid(), signal.SIGCONT)

    assert (error_of(work), in_domain(work)) == (0, errno.EPERM)


def test_this_kernel_has_landlock():
    assert landlock.detect_abi() >= 1
