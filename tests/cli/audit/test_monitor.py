"""`stoilo audit monitor` against real logs: on a disk, over HTTP, forked, stopped."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stoilo.audit.format.proof import Leaf, LeafKind, render_leaf
from stoilo.audit.log.sequencer import Sequencer
from stoilo.cli.audit.monitor import _Stop
from stoilo.cli.main import main
from stoilo.core.digests import content_digest
from tests.support.faulty_log import LogKey

KEY = LogKey("log.test/t")


def write_log(data_dir: Path, *names: str) -> Path:
    """Write a log of one admission a name."""
    with Sequencer.open(data_dir, KEY.origin, KEY.sign, policy=KEY.policy) as log:
        log.append_many(
            [
                render_leaf(
                    Leaf(LeafKind.ADMISSION, content_digest(name.encode()), "1", 5)
                )
                for name in names
            ]
        )
    return data_dir


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return write_log(tmp_path / "data", "a", "b", "c")


def monitor(tmp_path: Path, location: Path, *more: str) -> int:
    state = ["--state", str(tmp_path / "state"), "--policy", KEY.vkey, "--once"]
    return main(["audit", "monitor", str(location), *state, *more])


def test_match_is_printed_once(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = [
        "--watch",
        f"digest:{content_digest(b'b')}",
        "--explain-within",
        "2000000000",
    ]
    assert monitor(tmp_path, data_dir, *watch) == 0
    assert "NOTICE match: leaf 1 (admission) matches digest:" in capsys.readouterr().out
    assert monitor(tmp_path, data_dir, *watch) == 0
    assert "match:" not in capsys.readouterr().out


def test_unexplained_admissions_exit_4_as_json(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert monitor(tmp_path, data_dir, "--json") == 4
    *findings, status = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(one["kind"], one["place"]) for one in findings] == [
        ("unexplained", place) for place in range(3)
    ]
    assert (status["kind"], status["size"], status["exit_code"]) == ("status", 3, 4)


def test_fork_prints_a_proof_that_anybody_can_check(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor(tmp_path, data_dir)
    forked = write_log(tmp_path / "forked", "a", "B", "c", "d")
    capsys.readouterr()
    assert monitor(tmp_path, forked) == 4
    printed = capsys.readouterr().out
    (file,) = (tmp_path / "state").glob("misbehaviour-*.txt")
    assert file.read_text() in printed
    check = ["audit", "check", str(file), "--policy"]
    assert main([*check, KEY.vkey]) == 0
    assert "Proven: the log log.test/t" in capsys.readouterr().out
    assert main([*check, KEY.vkey, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [one["size"] for one in answer["checkpoints"]] == [3, 4]
    assert main([*check, LogKey(KEY.origin, b"\x09" * 32).vkey]) == 4


def test_honest_growth_is_no_fork(data_dir: Path, tmp_path: Path) -> None:
    patience = ["--explain-within", "2000000000"]
    assert monitor(tmp_path, data_dir, *patience) == 0
    write_log(data_dir, "d", "e")
    assert monitor(tmp_path, data_dir, *patience) == 0


def test_file_that_is_no_proof_exits_4(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    arguments = [
        "audit",
        "check",
        str(tmp_path / "x"),
        "--policy",
        KEY.vkey,
    ]
    assert main(arguments) == 4
    arguments[2] = str(tmp_path / "absent")
    assert main(arguments) == 2


@pytest.mark.parametrize(
    "more", [["--watch", "x"], ["--known", "me"], ["--policy", "nowhere"]]
)
def test_wrong_usage_exits_2(data_dir: Path, tmp_path: Path, more: list[str]) -> None:
    assert monitor(tmp_path, data_dir, *more) == 2


def test_log_out_of_reach_exits_7(tmp_path: Path) -> None:
    arguments = ["--state", str(tmp_path / "s"), "--policy", KEY.vkey, "--once"]
    assert main(["audit", "monitor", "http://127.0.0.1:9/", *arguments]) == 7


def start(tmp_path: Path, location: Path) -> subprocess.Popen[str]:
    given = f"--policy {KEY.vkey} --state {tmp_path / 'state'} --json --interval 0.1"
    command = [sys.executable, "-m", "stoilo", "audit", "monitor", str(location)]
    return subprocess.Popen(
        [*command, *given.split()], stdout=subprocess.PIPE, text=True
    )


def test_running_monitor_tells_at_once_and_stops_when_told(
    data_dir: Path, tmp_path: Path
) -> None:
    process = start(tmp_path, data_dir)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["kind"] == "unexplained"
    process.send_signal(signal.SIGTERM)
    lines = process.communicate(timeout=120)[0].splitlines()
    assert (process.returncode, json.loads(lines[-1])["kind"]) == (0, "status")


@pytest.mark.timeout(60)
def test_end_from_a_signal_handler_never_blocks() -> None:
    """Signals strike wherever the waiting thread is; with an `Event` one would hang it."""
    stop, struck = _Stop(), []

    def strike(*_: object) -> None:
        struck.append(1)
        stop.waking.stop()

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        for _ in range(2000):
            stop = _Stop()
            stop.wait(0.0005)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(struck) > 100


def test_running_monitor_ends_at_a_fork(data_dir: Path, tmp_path: Path) -> None:
    forked = write_log(tmp_path / "forked", "x", "y", "z", "w")
    process = start(tmp_path, data_dir)
    assert process.stdout is not None
    process.stdout.readline()
    shutil.rmtree(data_dir)
    forked.rename(data_dir)
    out = process.communicate(timeout=120)[0]
    assert process.returncode == 4
    assert json.loads(out.splitlines()[-2])["code"] == "STO-L120"


def test_each_log_has_a_state_of_its_own_by_default(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    given = ["--policy", KEY.vkey, "--once", "--explain-within", "2000000000"]
    assert main(["audit", "monitor", str(data_dir), *given]) == 0
    (state,) = (tmp_path / "home/stoilo/monitor").iterdir()
    assert (state / "monitor.sqlite").exists()
