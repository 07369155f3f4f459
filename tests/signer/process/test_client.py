import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.format.policy import open_checkpoint
from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.log.sequencer import Sequencer
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError
from stoilo.executor.verifier.admission import admission_leaf
from stoilo.signer.process.client import CheckpointSigner, SignerClient, SignerProcess
from tests.support.gate import GateBench, host_state, verify_bundle


@pytest.fixture
def gate(tmp_path: Path) -> GateBench:
    return GateBench(tmp_path / "root", now=int(time.time()))


def leaf(text: bytes) -> bytes:
    return render_leaf(Leaf(LeafKind.OPERATOR, content_digest(text), "1", 1))


def open_log(gate: GateBench, data: Path, client: SignerClient) -> Sequencer:
    sign = CheckpointSigner(client, data / "audit" / "log")
    policy = gate.root.trust.log_policy
    return Sequencer.open(data, gate.root.origin, sign, policy=policy)


def append(log: Sequencer, count: int, text: bytes = b"x") -> None:
    for number in range(count):
        log.wait_published(log.append(leaf(text + b"%d" % number)), timeout=60)


def test_growing_log_is_signed_over_restarts_of_both(
    gate: GateBench, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    for start in range(2):
        with SignerProcess(gate.root.directory, path), SignerClient(path) as client:
            log = open_log(gate, tmp_path / "data", client)
            append(log, 3, b"%d-" % start)
            note = log.checkpoint()
            log.close()
    opened = open_checkpoint(note, gate.root.trust.log_policy)
    assert opened.checkpoint.size == 6


def test_log_begun_anew_gets_no_signature(
    gate: GateBench, tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    """Total loss of both databases is detected, not hidden (I1)."""
    path = tmp_path / "s"
    with SignerProcess(gate.root.directory, path), SignerClient(path) as client:
        log = open_log(gate, tmp_path / "data", client)
        append(log, 3)
        log.close()
        asked: list[str] = []
        sign = CheckpointSigner(client, tmp_path / "new" / "audit" / "log")

        def watched(body: bytes) -> bytes:
            try:
                return sign(body)
            except StoiloError as error:
                asked.append(error.code)
                raise

        anew = Sequencer.open(tmp_path / "new", gate.root.origin, watched)
        for number in range(4):
            anew.append(leaf(b"other %d" % number))
        wait_until(lambda: asked)
        with pytest.raises(StoiloError):
            anew.wait_published(3, timeout=0.5)
        anew.close()
    assert set(asked) <= {"STO-K026"}


def test_whole_admission_with_real_log_signer_and_verifier(
    gate: GateBench, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    statement = gate.statement()
    payload = gate.admit(statement).payload
    with SignerProcess(gate.root.directory, path), SignerClient(path) as client:
        log = open_log(gate, tmp_path / "data", client)
        append(log, 5)
        index = log.append(admission_leaf(statement, payload))
        log.wait_published(index, timeout=60)
        proof = log.proof(index)
        envelope = client.sign_admission(payload, proof)
        other = log.proof(0)
        with pytest.raises(TrustError, match="STO-L020"):
            client.sign_admission(payload, other)
        log.close()
    admitted = gate.admit(statement)
    bundle = gate.bundle(admitted.__class__(payload, envelope, proof))
    assert verify_bundle(bundle, gate.root.trust, host_state(), gate.now)
