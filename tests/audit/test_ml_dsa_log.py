"""A whole log whose witnesses sign with ML-DSA-44: published, verified, proven."""

from pathlib import Path

import pytest

from stoilo.audit.format.note import Note, cosign_note, parse_note, render_note
from stoilo.audit.format.policy import Group, LogPolicy, Witness
from stoilo.audit.format.proof import check_proof
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.audit.read.search import prove_leaf
from stoilo.core.errors import TrustError
from stoilo.core.types import BOUNDS
from tests.support.faulty_log import LogKey
from tests.support.notekeys import KeyType, NoteKey

ORIGIN = "log.test/t"
LOG = LogKey(ORIGIN)
WITNESSES = [
    NoteKey.from_seed(f"w{number}.test", KeyType.ML_DSA_44, bytes([number]) * 32)
    for number in range(16)
]
NAMES = tuple(f"w{number}" for number in range(16))
POLICY = LogPolicy(
    LOG.policy.logs,
    tuple(Witness(n, key.vkey) for n, key in zip(NAMES, WITNESSES, strict=True)),
    (Group("all", 16, NAMES),),
    "all",
)


def sign(body: bytes, witnesses: list[NoteKey] = WITNESSES) -> bytes:
    cosigned = [
        cosign_note(body, key.vkey.name, key.private, 1_800_000_000)
        for key in witnesses
    ]
    return render_note(Note(body, (*parse_note(LOG.sign(body)).signatures, *cosigned)))


def test_log_with_sixteen_ml_dsa_witnesses_is_published_and_proven(
    tmp_path: Path,
) -> None:
    with Sequencer.open(tmp_path, ORIGIN, sign, policy=POLICY) as log:
        log.append_many([b"leaf %d" % number for number in range(300)])
        log.wait_published(299, 60)
    report = verify_log(tmp_path, POLICY)
    assert (report.size, len(report.witnesses)) == (300, 16)
    found = prove_leaf(tmp_path, "299", POLICY)
    assert 50_000 < len(found.proof) <= BOUNDS.proof_bytes
    assert check_proof(found.proof, b"leaf 299", POLICY).index == 299


def test_one_missing_witness_is_noticed(tmp_path: Path) -> None:
    with Sequencer.open(tmp_path, ORIGIN, sign) as log:
        log.wait_published(log.append(b"leaf"), 60)
    place = tmp_path / "audit/log/checkpoint"
    text = parse_note(place.read_bytes()).text
    verify_log(tmp_path, POLICY)
    place.write_bytes(sign(text, WITNESSES[1:]))
    with pytest.raises(TrustError, match="STO-L013"):
        verify_log(tmp_path / "audit/log", POLICY)
