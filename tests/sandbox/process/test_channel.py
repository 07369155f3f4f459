import os
import socket

import pytest

from stoilo.sandbox.process import channel


@pytest.fixture
def ends():
    ours, theirs = channel.pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_packet_and_descriptors_arrive_together(ends):
    ours, theirs = ends
    read, write = os.pipe()
    channel.send_with_descriptors(ours, b"one", (read, write))
    data, received = channel.receive_with_descriptors(theirs, 64, 2)
    os.write(received[1], b"x")
    assert (data, os.read(read, 1)) == (b"one", b"x")
    assert not any(map(os.get_inheritable, received))
    for descriptor in (read, write, *received):
        os.close(descriptor)


def test_packet_without_descriptors_brings_none(ends):
    ours, theirs = ends
    channel.send_with_descriptors(ours, b"two")
    assert channel.receive_with_descriptors(theirs, 64, 2) == (b"two", [])


def test_sockets_of_the_library_fit():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        channel.send_with_descriptors(ours, b"three")
        assert channel.receive_with_descriptors(theirs, 64, 0) == (b"three", [])


def test_sending_to_nobody_is_an_error_and_no_signal(ends):
    ours, theirs = ends
    theirs.close()
    with pytest.raises(BrokenPipeError):
        channel.send_with_descriptors(ours, b"four")


def test_adopted_descriptor_belongs_to_the_socket(ends):
    ours, theirs = ends
    adopted = channel.adopt(theirs.detach())
    channel.send_with_descriptors(ours, b"five")
    assert channel.receive_with_descriptors(adopted, 64, 0)[0] == b"five"
    adopted.close()
