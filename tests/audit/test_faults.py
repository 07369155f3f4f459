"""Every durable step fails, with and without its work done; then the log is reopened."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoilo.audit.fakes import DURABLE_STEPS, Fault, FaultKind, FaultyStore, LogKey
from stoilo.audit.proof import check_proof
from stoilo.audit.reader import verify_log
from stoilo.audit.sequencer import Sequencer
from stoilo.core.errors import StoiloError

Opener = Callable[..., Sequencer]
# The n-th calls that strike the first batch, a later one, and each tile of a batch.
CALLS = {"commit": (1, 2), "swap_head": (1, 2), "write_tiles": (1, 2, 3)}


def all_faults() -> Iterator[Fault]:
    for step in DURABLE_STEPS:
        for call in CALLS.get(step, (1,)):
            for kind in (FaultKind.IO_ERROR, FaultKind.DISK_FULL):
                for persisted in (False, True):
                    yield Fault(step, call, kind, persisted)


def append_all(log: Sequencer, leaves: list[bytes]) -> dict[bytes, int]:
    """Append in three batches; return what was acknowledged."""
    acknowledged: dict[bytes, int] = {}
    for start in range(0, len(leaves), 200):
        part = leaves[start : start + 200]
        try:
            indices = log.append_many(part)
            acknowledged.update(zip(part, indices, strict=True))
            log.wait_published(indices[-1], 0.3)
        except StoiloError:
            continue
    return acknowledged


@pytest.mark.parametrize("fault", list(all_faults()), ids=str)
def test_fault_loses_nothing_acknowledged_and_forks_nothing(
    open_log: Opener, tmp_path: Path, key: LogKey, fault: Fault
) -> None:
    leaves = [b"leaf %d" % number for number in range(600)]
    signed: list[bytes] = []

    def sign(body: bytes) -> bytes:
        signed.append(body)
        return key.sign(body)

    acknowledged: dict[bytes, int] = {}
    try:
        store = FaultyStore(tmp_path / "data", fault)
        with open_log(store=store, sign=sign) as log:
            acknowledged = append_all(log, leaves)
        assert store.calls[fault.step] >= fault.call, "the fault did not strike"
    except (StoiloError, OSError):
        pass  # the fault struck while opening
    with open_log(sign=sign) as log:
        assert all(log.leaf(at) == leaf for leaf, at in acknowledged.items())
        places = log.append_many(leaves)
        log.wait_published(max(places), 10)
        for index in (0, 255, 256, 599):
            check_proof(log.proof(index), log.leaf(index), key.policy)
    assert sorted(places) == list(range(600))
    assert verify_log(tmp_path / "data", key.policy).size == 600
    assert_one_history(signed)


def assert_one_history(signed: list[bytes]) -> None:
    """No two signed bodies have one size and two roots."""
    roots: dict[bytes, bytes] = {}
    for body in signed:
        _, size, root, _ = body.split(b"\n")
        assert roots.setdefault(size, root) == root
