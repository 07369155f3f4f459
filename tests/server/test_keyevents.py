from __future__ import annotations

from stoilo.audit.leaf import parse_leaf
from stoilo.executor.trust import ReleaseFiles
from stoilo.policies.policy import default_policy
from stoilo.server.keyevents import record_keys
from stoilo.testing.server import MemoryLog

FILES = ReleaseFiles(
    (
        ("metadata/1.root.json", b"root"),
        ("metadata/timestamp.json", b"changes every hour"),
        ("targets/gate/1.json", b"epoch 1"),
    )
)


def record(log: MemoryLog, files: ReleaseFiles, now: int) -> int:
    return record_keys(log, files, default_policy(), 1, now)


def test_keys_and_policy_are_logged_once_over_restarts() -> None:
    log = MemoryLog()
    assert record(log, FILES, 100) == 3
    assert record(log, FILES, 200) == 0
    kinds = [parse_leaf(leaf).kind.value for leaf in log.leaves]
    assert kinds == ["key", "key", "policy"]


def test_new_epoch_is_one_more_leaf() -> None:
    log = MemoryLog()
    record(log, FILES, 100)
    more = ReleaseFiles((*FILES.files, ("targets/gate/2.json", b"epoch 2")))
    assert record(log, more, 200) == 1
