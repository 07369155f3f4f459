import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from stoilo.audit.format.merkle import (
    Checkpoint,
    consistency_proof,
    leaf_hash,
    render_checkpoint,
)
from stoilo.audit.format.policy import open_checkpoint
from stoilo.core.errors import TrustError, UnreachableError
from stoilo.signer.process.client import SignerClient, SignerProcess
from stoilo.signer.process.listener import check_peer
from tests.support.gate import GateBench

DOOMED = Path(__file__).parent / "programs" / "killed_signer.py"


@pytest.fixture
def gate(tmp_path: Path) -> GateBench:
    """Made for today: a signer process has the real clock."""
    return GateBench(tmp_path / "root", now=int(time.time()))


@pytest.fixture
def signer(gate: GateBench, tmp_path: Path) -> Iterator[SignerProcess]:
    with SignerProcess(gate.root.directory, tmp_path / "signer.sock") as running:
        yield running


@pytest.fixture
def client(signer: SignerProcess, tmp_path: Path) -> Iterator[SignerClient]:
    assert signer.pid
    with SignerClient(tmp_path / "signer.sock") as asking:
        yield asking


def grow(gate: GateBench, leaf: bytes) -> bytes:
    """Return the body of the next checkpoint."""
    gate.tree.append(leaf_hash(leaf))
    return gate.checkpoint_body()


def test_admission_is_signed_over_the_socket(
    client: SignerClient, gate: GateBench
) -> None:
    admitted = gate.admit(gate.statement())
    envelope = client.sign_admission(admitted.payload, admitted.proof)
    assert b"gate-1" in envelope
    with pytest.raises(TrustError, match="STO-A002"):
        client.sign_admission(b"x", admitted.proof)


def test_socket_is_closed_to_other_users(signer: SignerProcess, tmp_path: Path) -> None:
    assert signer.pid
    mode = (tmp_path / "signer.sock").stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_peer_of_another_user_is_refused() -> None:
    check_peer(7, {7})
    with pytest.raises(TrustError, match="STO-K022"):
        check_peer(8, {7})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_connection_of_another_user_is_refused_by_the_kernels_word(
    gate: GateBench,
) -> None:
    """Even where the file's mode would let him in."""
    theirs, ours = socket.socketpair()
    with tempfile.TemporaryDirectory() as name, theirs, ours:
        Path(name).chmod(0o755)
        path = Path(name) / "signer.sock"
        with SignerProcess(gate.root.directory, path):
            path.chmod(0o666)
            if (child := os.fork()) == 0:
                ask_as_nobody(path, ours)
            os.waitpid(child, 0)
        assert b"STO-K022" in theirs.recv(4096)


def ask_as_nobody(path: Path, ours: socket.socket) -> NoReturn:
    """Become another user and send the signer's answer home."""
    try:
        os.setgid(65534)
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(path))
            ours.send(asking.recv(4096))
    finally:
        os._exit(0)


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\2{}",
        b'\0\0\0\x10{"type":"sign_x"}',
        b"\0\0\0\4\xff\xff\xff\xff",
    ],
)
def test_untyped_request_is_refused_and_the_signer_stays_up(
    client: SignerClient, tmp_path: Path, frame: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(tmp_path / "signer.sock"))
        raw.sendall(frame)
        assert b"STO-K022" in raw.recv(4096)
    assert client.ping().pid


def test_many_callers_are_answered_at_once(
    client: SignerClient, gate: GateBench, tmp_path: Path
) -> None:
    assert client.ping()
    admitted = gate.admit(gate.statement())
    seen: list[bytes] = []

    def ask() -> None:
        with SignerClient(tmp_path / "signer.sock") as mine:
            seen.append(mine.sign_admission(admitted.payload, admitted.proof))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len(set(seen)) == 1


def test_second_signer_on_one_directory_is_refused(
    signer: SignerProcess, gate: GateBench, tmp_path: Path
) -> None:
    assert signer.pid
    command = [sys.executable, "-m", "stoilo.signer.process"]
    command += ["--keys", str(gate.root.directory), "--socket", str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "STO-K029" in done.stderr


def test_socket_in_a_very_long_directory_works(gate: GateBench, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    path = folder / "signer.sock"
    with SignerProcess(gate.root.directory, path), SignerClient(path) as asking:
        assert asking.ping().size == 0


def test_client_survives_a_killed_and_restarted_signer(
    signer: SignerProcess, tmp_path: Path
) -> None:
    with SignerClient(tmp_path / "signer.sock", revive=signer.ensure) as client:
        for _ in range(3):
            first = client.ping().pid
            os.kill(first, signal.SIGKILL)
            assert client.ping().pid not in {0, first}


def test_absent_signer_is_named_after_the_deadline(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="STO-K020"):
        SignerClient(tmp_path / "none", timeout_s=0.1).ping()


def is_over(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def test_signer_ends_with_its_server(
    gate: GateBench, tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    """kill -9 of the server leaves no process with keys behind."""
    program = (
        "import sys,time;from pathlib import Path;"
        "from stoilo.signer.process.client import SignerProcess;"
        "s=SignerProcess(Path(sys.argv[1]),Path(sys.argv[2]));s.start();"
        "print(s.pid,flush=True);time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(gate.root.directory)]
    with subprocess.Popen(
        [*command, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        server.kill()
    wait_until(lambda: is_over(pid))


def test_signers_memory_is_closed_to_its_own_user(signer: SignerProcess) -> None:
    status = Path(f"/proc/{signer.pid}")
    assert (status / "mem").stat().st_uid == 0  # not dumpable: it belongs to root
    assert Path("/proc/self/mem").stat().st_uid == os.geteuid()  # the control
    limits = (status / "limits").read_text()
    assert "Max core file size        0" in limits


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_killed_signer_never_gives_two_checkpoints_that_disagree(
    gate: GateBench, tmp_path: Path, moment: str
) -> None:
    path = tmp_path / "signer.sock"
    notes: list[bytes] = []
    command = [sys.executable, str(DOOMED), str(gate.root.directory), str(path), moment]
    with subprocess.Popen(command) as doomed, SignerClient(path) as asking:
        for number in range(2):
            body = grow(gate, bytes([number]))
            notes.append(asking.sign_checkpoint(body, extends_last(gate)))
        third = grow(gate, b"third")
        patience_s = 20 if moment == "after" else 0.5
        with SignerClient(path, timeout_s=patience_s) as impatient:
            try:
                notes.append(impatient.sign_checkpoint(third, extends_last(gate)))
            except UnreachableError:
                assert moment != "after"
        assert doomed.wait(60) == -signal.SIGKILL
    last_size = gate.tree.size
    with SignerProcess(gate.root.directory, path), SignerClient(path) as asking:
        remembered = asking.ping().size
        assert remembered == last_size - (moment == "before")
        other = fork_body(gate, last_size)
        with pytest.raises(TrustError, match="STO-K026"):
            asking.sign_checkpoint(other, extends_last(gate))
        with pytest.raises(TrustError, match="STO-K026"):
            asking.sign_checkpoint(smaller(notes[0]))
        notes.append(asking.sign_checkpoint(third, extends_last(gate)))
        with pytest.raises(TrustError, match="STO-K026"):
            asking.sign_checkpoint(other)
    assert agree(notes, gate)


def extends_last(gate: GateBench) -> list[bytes]:
    """Return the proof that the newest leaf was appended to what was there before."""
    size = gate.tree.size
    return consistency_proof(size - 1, size, gate.tree.node)


def fork_body(gate: GateBench, size: int) -> bytes:
    """Return a body of `size` with a root that was never signed."""
    return render_checkpoint(Checkpoint(gate.root.origin, size, leaf_hash(b"fork")))


def smaller(note: bytes) -> bytes:
    """Return the body of an earlier note."""
    return note.partition(b"\n\n")[0] + b"\n"


def agree(notes: list[bytes], gate: GateBench) -> bool:
    """Whether no two signed checkpoints name different trees of one size."""
    roots: dict[int, bytes] = {}
    for note in notes:
        seen = open_checkpoint(note, gate.root.trust.log_policy).checkpoint
        if roots.setdefault(seen.size, seen.root) != seen.root:
            return False
    return True
