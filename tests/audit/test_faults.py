"""Every durable step fails, with and without its work done; then the log is reopened.

The log has a real witness: it remembers every checkpoint that it has cosigned and would
refuse another history, so that whatever is published at the end is no fork.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stoilo.audit.format.policy import LogPolicy, parse_policy
from stoilo.audit.format.proof import check_proof
from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.audit.witness.client import Cosigner, CosignSettings
from stoilo.core.errors import StoiloError, WaitError
from tests.support.faulty_log import (
    DURABLE_STEPS,
    REMOTE_STEPS,
    Fault,
    FaultKind,
    FaultyCall,
    FaultyStore,
    LogKey,
)
from tests.support.local_witness import LocalWitness

Opener = Callable[..., Sequencer]
# The n-th calls that strike the first batch, a later one, and each tile of a batch.
CALLS = {
    "commit": (1, 2),
    "swap_head": (1, 2),
    "write_tiles": (1, 2, 3),
    "write_checkpoint": (1, 2),
    "record_published": (1, 2),
    "sign": (1, 2),
    "cosign": (1, 2),
}
STEPS = {
    "head database": ("create_head", "swap_head", "record_published"),
    "data": ("create_log", "commit", "move_tail"),
    "tiles": ("write_tiles", "drop_partials", "write_policy"),
    "checkpoint": ("write_checkpoint", "sign"),
    "cosignature": ("cosign",),
}


def all_faults() -> Iterator[Fault]:
    for step in (*DURABLE_STEPS, *REMOTE_STEPS):
        for call in CALLS.get(step, (1,)):
            for kind in (FaultKind.IO_ERROR, FaultKind.DISK_FULL):
                for persisted in (False, True):
                    yield Fault(step, call, kind, persisted)


@pytest.fixture
def witness(tmp_path: Path, key: LogKey) -> Iterator[LocalWitness]:
    made = LocalWitness(tmp_path / "witness", "witness.test/w", key)
    yield made
    made.store.close()


@pytest.fixture
def policy(key: LogKey, witness: LocalWitness) -> LogPolicy:
    text = f"log {key.vkey}\nwitness w {witness.key.vkey} http://w/\nquorum w\n"
    return parse_policy(text.encode())


@pytest.fixture
def cosigner(policy: LogPolicy, witness: LocalWitness) -> Iterator[Cosigner]:
    made = Cosigner(
        policy,
        settings=CosignSettings(timeout_s=1, linger_s=0),
        wire=lambda _: witness,
    )
    yield made
    made.close()


def append_all(
    log: Sequencer, leaves: list[bytes], has_struck: Callable[[], bool]
) -> dict[bytes, int]:
    """Append in three batches, each published unless the fault strikes first.

    Returns what was acknowledged.
    """
    acknowledged: dict[bytes, int] = {}
    for start in range(0, len(leaves), 200):
        part = leaves[start : start + 200]
        try:
            indices = log.append_many(part)
            acknowledged.update(zip(part, indices, strict=True))
            wait_for_batch(log, indices[-1], has_struck)
        except StoiloError:
            continue
    return acknowledged


def wait_for_batch(log: Sequencer, index: int, has_struck: Callable[[], bool]) -> None:
    while True:
        with suppress(WaitError):
            log.wait_published(index, 0.3)
            return
        if has_struck():
            return


def test_matrix_covers_every_step() -> None:
    named = [step for steps in STEPS.values() for step in steps]
    assert sorted(named) == sorted((*DURABLE_STEPS, *REMOTE_STEPS))


@pytest.mark.parametrize("fault", list(all_faults()), ids=str)
def test_fault_loses_nothing_acknowledged_and_forks_nothing(
    open_log: Opener,
    tmp_path: Path,
    key: LogKey,
    policy: LogPolicy,
    cosigner: Cosigner,
    fault: Fault,
) -> None:
    leaves = [b"leaf %d" % number for number in range(600)]
    signed: list[bytes] = []

    def sign(body: bytes) -> bytes:
        signed.append(body)
        return key.sign(body)

    signer = FaultyCall("sign", sign, fault)
    witnesses = FaultyCall("cosign", cosigner, fault)
    acknowledged: dict[bytes, int] = {}
    try:
        store = FaultyStore(tmp_path / "data", fault)

        def has_struck() -> bool:
            called = {**store.calls, "sign": signer.calls, "cosign": witnesses.calls}
            return called.get(fault.step, 0) >= fault.call

        with open_log(store=store, sign=signer, cosign=witnesses, policy=policy) as log:
            acknowledged = append_all(log, leaves, has_struck)
        assert has_struck()
    except (StoiloError, OSError):
        pass  # the fault struck while opening
    if (tmp_path / "data/audit/log.sqlite").exists():
        assert fsck_log(tmp_path / "data", policy).is_sound
    with open_log(sign=sign, cosign=cosigner, policy=policy) as log:
        assert all(log.leaf(at) == leaf for leaf, at in acknowledged.items())
        places = log.append_many(leaves)
        log.wait_published(max(places), 60)
        for index in (0, 255, 256, 599):
            check_proof(log.proof(index), log.leaf(index), policy)
    assert sorted(places) == list(range(600))
    report = verify_log(tmp_path / "data", policy)
    assert (report.size, report.witnesses) == (600, ("w",))
    assert_one_history(signed)


def assert_one_history(signed: list[bytes]) -> None:
    """No two signed bodies have one size and two roots."""
    roots: dict[bytes, bytes] = {}
    for body in signed:
        _, size, root, _ = body.split(b"\n")
        assert roots.setdefault(size, root) == root
