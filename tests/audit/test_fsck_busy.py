"""fsck beside a writer that goes on: whatever moves meanwhile is no fault."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.log.database import LogDatabase
from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.fsck_databases import LeafRows
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.log.store import HeadDatabase
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.audit.read.reader import verify_log
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]


class BusyWriter:
    """Appends and publishes after the n-th time that the main thread reads something."""

    def __init__(self, log: Sequencer, turn: int) -> None:
        self.log, self.turn, self.count, self.is_busy = log, turn, 0, False

    def wrap(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        read = getattr(owner, name)

        def reading(*values: object, **named: object) -> object:
            found = read(*values, **named)
            self.step()
            return found

        patch.setattr(owner, name, reading)

    def step(self) -> None:
        if self.is_busy or threading.current_thread() is not threading.main_thread():
            return
        self.count += 1
        if self.count == self.turn:
            self.is_busy = True
            for batch in range(2):
                leaves = [b"meanwhile %d %d" % (batch, number) for number in range(300)]
                self.log.wait_published(self.log.append_many(leaves)[-1], 60)
            self.is_busy = False


@pytest.mark.parametrize("turn", [*range(1, 12), 20, 30])
def test_writer_that_goes_on_meanwhile_is_no_fault(
    open_log: Opener,
    filled: Path,
    key: LogKey,
    monkeypatch: pytest.MonkeyPatch,
    turn: int,
) -> None:
    """Whatever is read, the next moment the log is larger."""
    with open_log() as log:
        writer = BusyWriter(log, turn)
        for owner, name in (
            (TileDirectory, "read"),
            (TileDirectory, "tiles"),
            (HeadDatabase, "load"),
            (LogDatabase, "load"),
            (LeafRows, "block"),
            (LeafRows, "select"),
        ):
            writer.wrap(monkeypatch, owner, name)
        report = fsck_log(filled, key.policy)
        assert writer.count >= turn
        assert [one for one in report.findings if one.severity == "fault"] == []
        assert report.is_proven
        verify_log(filled, key.policy)
