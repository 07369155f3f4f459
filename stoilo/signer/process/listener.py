"""The signer process: the only one that holds signing keys (design §3).

    python -m stoilo.signer.process --keys DIR --socket PATH [--allow-uid N] [--lifeline FD]

Listens on a unix socket of mode 0600, asks the kernel who called (SO_PEERCRED) and answers
typed requests only. One process a directory, by a lock. It cannot be read by debuggers,
leaves no core file, and ends when the pipe named by ``--lifeline`` closes.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, Final

from stoilo.core.errors import StoiloError, TrustError
from stoilo.signer.process.protocol import (
    Refused,
    receive_request,
    send_record,
    unix_address,
)
from stoilo.signer.process.service import SignerService

PR_SET_DUMPABLE: Final = 4
MAX_CONNECTIONS: Final = 32
IDLE_S: Final = 3600.0
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


def check_peer(uid: int, allowed: Collection[int]) -> None:
    """Raise ``STO-K022`` unless user `uid`, as the kernel says, may ask."""
    if uid not in allowed:
        raise TrustError("STO-K022", f"user {uid} may not ask for signatures")


def serve(
    service: SignerService, listener: socket.socket, allowed: Collection[int]
) -> None:
    """Answer connections until the listener is closed."""
    lock = threading.Lock()
    # A caller that opens connections and says nothing must not use up our threads.
    free = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def attend(connection: socket.socket) -> None:
        with connection:
            try:
                _attend(service, lock, connection, allowed)
            except OSError:
                pass
            finally:
                free.release()

    while True:
        free.acquire()
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        # Servers keep one connection for their life; a dead peer is dropped in
        # an hour.
        connection.settimeout(IDLE_S)
        threading.Thread(target=attend, args=(connection,), daemon=True).start()


def _attend(
    service: SignerService,
    lock: threading.Lock,
    connection: socket.socket,
    allowed: Collection[int],
) -> None:
    """Answer one connection's requests, in order; a bad frame ends it."""
    try:
        check_peer(_peer_uid(connection), allowed)
        while request := receive_request(connection):
            # One request at a time: the memories of log and revocations
            # have one writer.
            with lock:
                response = service.answer(request)
            send_record(connection, response)
    except TrustError as error:
        send_record(connection, Refused(error.code, error.message))


def _peer_uid(connection: socket.socket) -> int:
    """Return the caller's user id, as recorded by the kernel at connect."""
    # What the caller says of itself is not asked.
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(data)[1])


def harden_process() -> None:
    """No core files, and memory closed to other processes of this user."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise TrustError("STO-K029", "the signer cannot protect its memory")


def open_listener(path: Path, *, shared: bool = False) -> socket.socket:
    """Return a listening socket at `path`, mode 0600; the caller holds the lock.

    `shared` lets this process' group connect too (0660); who may ask is decided by uid.
    """
    # A killed signer leaves its socket; the lock says that nobody else uses it.
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # bind() makes the file: closed to others from its first moment, not chmod-ed
    # later.
    before = os.umask(0o117 if shared else 0o177)
    try:
        with unix_address(path) as address:
            listener.bind(address)
    finally:
        os.umask(before)
    listener.listen(MAX_CONNECTIONS)
    return listener


def take_lock(directory: Path) -> IO[bytes]:
    """Return the held lock of a release directory; raises ``STO-K029`` if taken."""
    lock = (directory / "state" / "lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise TrustError("STO-K029", "another signer uses this directory") from error
    return lock


def _watch_lifeline(descriptor: int) -> None:

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        # No clean-up could run if the server was killed; what was signed is
        # durable.
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stoilo.signer.process")
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--allow-uid", type=int, action="append", default=[])
    parser.add_argument("--lifeline", type=int, default=-1)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the signer until SIGTERM; returns an exit code."""
    options = _parse(arguments)
    if options.lifeline >= 0:
        _watch_lifeline(options.lifeline)
    try:
        harden_process()
        with take_lock(options.keys):
            return _run(options)
    except StoiloError as error:
        sys.stderr.write(f"stoilo signer: {error}\n")
        return error.exit_code


def _leave(socket: Path) -> None:
    """End at once, wherever the main thread is: what was given out is durable."""
    # An exception would be lost where it came up inside a callback of the collector.
    socket.unlink(missing_ok=True)
    os._exit(0)


def _run(options: argparse.Namespace) -> int:
    service = SignerService(options.keys)
    listener = open_listener(options.socket, shared=bool(options.allow_uid))
    signal.signal(signal.SIGTERM, lambda *_: _leave(options.socket))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to handle
    try:
        serve(service, listener, {os.geteuid(), *options.allow_uid})
    finally:
        options.socket.unlink(missing_ok=True)
        listener.close()
    return 0
