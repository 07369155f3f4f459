"""Whether the index of places is right, told by sums alone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoilo.audit.log import database
from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.sqlite import connect

Opener = Callable[..., Sequencer]
SPOILS = (
    "UPDATE places SET idx = 3 WHERE idx = 4",
    "UPDATE places SET idx = -1 WHERE idx = 4",
    "UPDATE places SET hash = zeroblob(32) WHERE idx = 7",
    "UPDATE places SET hash = x'00' WHERE idx = 7",
    "DELETE FROM places WHERE idx = 9",
    "INSERT INTO places VALUES (zeroblob(32), 9)",
    "INSERT INTO places VALUES (zeroblob(32), 299)",
)


@pytest.fixture
def indexed(
    open_log: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A log of 300 leaves, of which the first 200 are in the table of places."""
    monkeypatch.setattr(database, "_TAIL_LEAVES", 200)
    with open_log() as log:
        log.append_many([b"%d" % number for number in range(200)])
        log.append(b"200")
        log.append_many([b"%d" % number for number in range(201, 300)])
        log.wait_published(299, 60)
    return tmp_path / "data"


def test_sound_index_is_right(indexed: Path) -> None:
    base = connect(indexed / "audit/log.sqlite", read_only=True)
    assert base.execute("SELECT indexed FROM state").fetchone()[0] >= 200
    base.close()
    assert fsck_log(indexed).is_sound


@pytest.mark.parametrize("spoil", SPOILS)
def test_wrong_row_of_the_index_is_found(indexed: Path, spoil: str) -> None:
    base = connect(indexed / "audit/log.sqlite")
    base.execute(spoil)
    base.close()
    found = fsck_log(indexed).findings
    assert any("table places" in str(one) for one in found), found
