"""Verify one admission as a volunteer does, with release metadata already fresh."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.rows import Row, median_seconds
from stoilo.audit.format.merkle import leaf_hash
from stoilo.executor.verifier.trust import load_trust, parse_release_pack
from stoilo.signer.process.protocol import Admission, SignAdmissions
from stoilo.signer.process.service import SignerService
from stoilo.signer.release_directory import pack_release, read_release
from tests.support.gate import INSTALLED, NOW, GateBench, host_state, verify_bundle

LEAVES = 1 << 16
REACH_MS = 5.0
BATCH = 100


def measure(leaves: int = LEAVES) -> list[Row]:
    """Time verification, loading a release, and signing, full checks each."""
    with tempfile.TemporaryDirectory() as folder:
        gate = GateBench(Path(folder) / "root")
        for number in range(leaves):
            gate.tree.append(leaf_hash(b"%d" % number))
        admitted = gate.admit(gate.statement())
        return [*_verify_rows(gate, admitted, leaves), _sign_row(gate, admitted)]


def _verify_rows(gate: GateBench, admitted: object, leaves: int) -> list[Row]:
    bundle = gate.bundle(admitted)
    trust, host = gate.root.trust, host_state()
    verify = median_seconds(lambda: verify_bundle(bundle, trust, host, NOW), runs=99)
    pack = pack_release(read_release(gate.root.directory))
    root = gate.root.root_file.read_bytes()

    def load() -> None:
        load_trust(parse_release_pack(pack), root, NOW, installed=INSTALLED)

    return [
        Row(
            name=f"verify one admission, release fresh, log of {leaves:,}",
            ours=verify * 1000,
            unit="ms",
            target=f"<= {REACH_MS:g} ms",
            met=verify * 1000 <= REACH_MS,
        ),
        Row(
            name="load a release (TUF)", ours=median_seconds(load, 19) * 1000, unit="ms"
        ),
    ]


def _sign_row(gate: GateBench, admitted: object) -> Row:
    signer = SignerService(gate.root.directory, clock=lambda: NOW)
    one = Admission(admitted.payload, admitted.proof)
    request = SignAdmissions((one,) * BATCH)
    seconds = median_seconds(lambda: signer.answer(request), runs=9)
    return Row(
        name="signer: admissions checked and signed, one batch of 100",
        ours=BATCH / seconds,
        unit="1/s",
        target=">= 1,000/s",
        met=BATCH / seconds >= 1000,
    )
