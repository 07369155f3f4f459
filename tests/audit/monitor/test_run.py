import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.audit.format.misbehaviour import check_misbehaviour
from stoilo.audit.monitor.finding import Finding
from stoilo.audit.monitor.monitor import MonitorReport, run_monitor
from stoilo.core.errors import TrustError, UnreachableError

from .conftest import Watcher

Fill = Callable[[int], Watcher]


class Show:
    """Collects what is shown; does something after so many findings."""

    def __init__(self) -> None:
        self.shown: list[tuple[Finding, str]] = []

    def __call__(self, finding: Finding, file: str) -> None:
        self.shown.append((finding, file))

    @property
    def codes(self) -> list[str]:
        return [finding.code for finding, _ in self.shown]


def run(watcher: Watcher, show: Show, *, once: bool = True) -> MonitorReport:
    monitor = watcher.monitor()
    assert watcher.state is not None
    return run_monitor(
        monitor,
        watcher.state,
        show,
        once=once,
        interval_s=0.01,
        wait=threading.Event().wait,
    )


def test_one_poll_of_a_sound_log_ends_well(filled: Fill) -> None:
    watcher = filled(2)
    report = run(watcher, Show())
    assert (report.origin, report.size, report.exit_code) == ("log.test/t", 4, 0)
    assert report.root == watcher.log.tree().node(2, 0).hex()


def test_notices_are_no_failure_and_alarms_are(filled: Fill) -> None:
    watcher, show = filled(2), Show()
    watcher.log.key_event("born")
    watcher.log.publish()
    assert (run(watcher, show).exit_code, show.codes) == (0, [""])
    watcher.now += 86_401
    assert (run(watcher, show).exit_code, show.codes) == (4, ["", "STO-L135"])


def test_fork_ends_the_run_and_its_proof_is_written(filled: Fill) -> None:
    watcher, show = filled(2), Show()
    watcher.log.entries[0] = b"x"
    watcher.log.publish()
    assert run(watcher, show, once=False).exit_code == 4
    ((finding, file),) = show.shown
    assert Path(file).parent == watcher.directory
    assert Path(file).read_text() == finding.proof
    assert check_misbehaviour(Path(file).read_bytes(), watcher.policy).first.size == 4


def test_written_proof_is_shown_again_at_the_next_run(filled: Fill) -> None:
    watcher = filled(2)
    watcher.log.entries[0] = b"x"
    watcher.log.publish()
    files = []
    for _ in range(2):
        show = Show()
        assert run(watcher, show).exit_code == 4
        files.append(show.shown[0][1])
    assert files[0] == files[1]


def test_same_trouble_is_shown_once_while_it_lasts(filled: Fill) -> None:
    watcher, show = filled(1), Show()
    polls = 0

    def checkpoint() -> bytes | None:
        nonlocal polls
        polls += 1
        if polls in {2, 3, 5}:
            raise UnreachableError("STO-L002", "no answer")
        if polls == 7:
            watcher.log.entries[0] = b"x"
            watcher.log.publish()
        return watcher.log.note

    watcher.log.checkpoint = checkpoint  # type: ignore[method-assign]
    run(watcher, show, once=False)
    assert show.codes == ["STO-L002", "STO-L002", "STO-L120"]


@pytest.mark.parametrize(("code", "expected"), [("STO-L002", 7), ("STO-L012", 4)])
def test_failure_of_the_only_poll_is_the_exit_code(
    filled: Fill, code: str, expected: int
) -> None:
    watcher, show = filled(1), Show()
    family = UnreachableError if expected == 7 else TrustError

    def checkpoint() -> bytes | None:
        raise family(code, "what happened")

    watcher.log.checkpoint = checkpoint  # type: ignore[method-assign]
    assert (run(watcher, show).exit_code, show.codes) == (expected, [code])


def test_finding_that_could_not_be_shown_comes_again(filled: Fill) -> None:
    watcher, show = filled(1), Show()
    watcher.log.key_event("born")
    watcher.log.publish()

    class Broken(Show):
        def __call__(self, finding: Finding, file: str) -> None:
            raise BrokenPipeError(finding.kind, file)

    with pytest.raises(BrokenPipeError):
        run(watcher, Broken())
    run(watcher, show)
    assert [finding.kind for finding, _ in show.shown] == ["key"]


def test_damaged_state_ends_the_run(filled: Fill) -> None:
    watcher = filled(1)
    monitor = watcher.monitor()
    assert watcher.state is not None
    watcher.state.connection.execute("DROP TABLE ahead")
    with pytest.raises(TrustError, match="STO-L124"):
        run_monitor(
            monitor, watcher.state, Show(), once=True, wait=threading.Event().wait
        )


def test_stopped_run_ends_well(filled: Fill) -> None:
    watcher, stop = filled(1), threading.Event()
    stop.set()
    watcher.now += 86_401
    monitor = watcher.monitor()
    assert watcher.state is not None
    report = run_monitor(monitor, watcher.state, Show(), wait=stop.wait)
    assert report.exit_code == 0


def test_fork_is_shown_also_where_its_proof_cannot_be_written(
    filled: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(directory: Path, proof: bytes) -> Path:
        raise OSError(28, "no space left", str(directory), len(proof))

    watcher, show = filled(2), Show()
    monkeypatch.setattr("stoilo.audit.monitor.monitor.write_proof", full)
    watcher.log.entries[0] = watcher.log.entries[2]
    watcher.log.publish()
    assert run(watcher, show).exit_code == 4
    ((finding, place),) = show.shown
    assert check_misbehaviour(finding.proof.encode(), watcher.policy)
    assert place == ""
