"""Two writers of one log: the second is refused; without the lock nobody forks it."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.log.publisher import Prove
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.core.errors import InternalError, StoiloError
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]
INTRUDER = Path(__file__).parent / "programs" / "second_writer.py"


def intrude(data_dir: Path) -> str:
    command = [sys.executable, str(INTRUDER), str(data_dir)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=200)
    return done.stdout.decode().strip()


def test_second_process_is_refused_while_the_first_one_writes(
    open_log: Opener, tmp_path: Path
) -> None:
    with open_log() as log:
        log.append(b"first")
        assert intrude(tmp_path / "data") == "STO-L040"
        assert log.append(b"second") == 1
    assert intrude(tmp_path / "data") == "opened"  # the control: nobody writes now


def test_process_that_lost_its_lock_stops_and_forks_nothing(
    open_log: Opener, tmp_path: Path, key: LogKey
) -> None:
    log = open_log()
    log.wait_published(log.append(b"first"), 60)
    (tmp_path / "data/audit/lock").unlink()
    assert intrude(tmp_path / "data") == "opened"
    with pytest.raises(InternalError, match=r"another process.*STO-L051"):
        log.append(b"mine")
    log.close()
    with open_log() as again:
        assert [again.leaf(index) for index in range(again.size)] == [
            b"first", b"intruder"
        ]  # fmt: skip
    assert verify_log(tmp_path / "data", key.policy).size == 2


def test_checkpoint_of_a_second_writer_is_not_overwritten(
    open_log: Opener, tmp_path: Path
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def cosign(note: bytes, _prove: Prove) -> bytes:
        asked.set()
        answer.wait()
        return note

    log = open_log(cosign=cosign)
    log.append(b"first")
    asked.wait()
    (tmp_path / "data/audit/lock").unlink()
    assert intrude(tmp_path / "data") == "opened"
    answer.set()
    with pytest.raises(InternalError, match=r"another process.*STO-L051"):
        log.wait_published(0, 60)
    log.close()
    assert verify_log(tmp_path / "data").size == 2


def test_two_writers_without_a_lock_acknowledge_no_place_twice(
    open_log: Opener, tmp_path: Path
) -> None:
    first = open_log()
    (tmp_path / "data/audit/lock").unlink()
    logs, acknowledged = [first, open_log()], {}
    for number in range(20):
        leaf = b"%d" % number
        try:
            index = logs[number % 2].append(leaf)
        except StoiloError:
            continue
        assert acknowledged.setdefault(index, leaf) == leaf
    for log in logs:
        log.close()
    assert acknowledged
    with open_log() as log:
        assert all(log.leaf(index) == leaf for index, leaf in acknowledged.items())
