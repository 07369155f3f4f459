"""Landlock alone, seccomp off: what it denies by itself."""

import ctypes
import errno
import os
import signal
import socket
import struct

import pytest

from stoilo.sandbox.kernel import calls


def in_domain(work):
    """Run `work` in a forked child closed by Landlock only; returns its errno or 0."""
    pid = os.fork()
    if pid == 0:
        calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
        calls.restrict_self(calls.create_empty_ruleset(calls.detect_abi()))
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
    if calls.detect_abi() < calls._NET_ABI:
        pytest.skip("this kernel's Landlock knows no network")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert error_of(lambda: connect_to(port)) == 0
        assert in_domain(lambda: connect_to(port)) == errno.EACCES


def test_signal_to_the_parent_is_denied_and_works_outside():
    if calls.detect_abi() < calls._SCOPE_ABI:
        pytest.skip("this kernel's Landlock has no scopes")

    def work():
        os.kill(os.getppid(), signal.SIGCONT)

    assert (error_of(work), in_domain(work)) == (0, errno.EPERM)


def test_this_kernel_has_landlock():
    assert calls.detect_abi() >= 1


def handled_by(abi):
    """Return what a kernel of that ABI is asked to handle: words of the attribute."""
    seen = []

    def kernel(number, pointer, size, flags):
        assert (number, flags) == (444, 0)
        seen.append(struct.unpack(f"={size // 8}Q", ctypes.string_at(pointer, size)))
        return 99

    assert calls.create_empty_ruleset(abi, kernel) == 99
    return seen[0]


ALL_13, ALL_14, ALL_15, ALL_16 = ((1 << bits) - 1 for bits in (13, 14, 15, 16))


@pytest.mark.parametrize(
    ("abi", "words"),
    [
        (1, (ALL_13,)),
        (2, (ALL_14,)),
        (3, (ALL_15,)),
        (4, (ALL_15, 0b11)),
        (5, (ALL_16, 0b11)),
        (6, (ALL_16, 0b11, 0b11)),
        (7, (ALL_16, 0b11, 0b11)),
        (99, (ALL_16, 0b11, 0b11)),
    ],
)
def test_each_abi_is_asked_for_all_that_it_knows_and_no_more(abi, words):
    """A kernel answers E2BIG or EINVAL to what it does not know."""
    assert handled_by(abi) == words


def test_this_kernel_accepts_every_abi_up_to_its_own():
    for abi in range(1, calls.detect_abi() + 1):
        os.close(calls.create_empty_ruleset(abi))
