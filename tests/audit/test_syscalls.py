"""Every kind of write-type system call of a real writer fails, or is its last.

strace injects EIO, ENOSPC or SIGKILL into the n-th call of one kind in one group of the
writer's threads, for every n of a first, undisturbed run (long runs of one kind: a fixed
sample with the first and the last). Afterwards `fsck` must find no fault and change
nothing, everything acknowledged must be there, and the log must go on from it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stoilo.audit.format.proof import check_proof
from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import verify_log
from stoilo.core.errors import UsageError
from tests.support.faulty_log import LogKey

Opener = Callable[..., Sequencer]
PROGRAM = Path(__file__).parent / "programs" / "struck_writer.py"
STRACE = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="needs strace")

NAMES = (
    "write pwrite64 writev pwritev fsync fdatasync sync_file_range fallocate rename "
    "renameat renameat2 open openat creat mkdir mkdirat ftruncate truncate unlink "
    "unlinkat rmdir link linkat symlink symlinkat close"
)
CALLS = ",".join(f"?{name}" for name in NAMES.split())
FAULTS = {
    "EIO": "error=EIO",
    "ENOSPC": "error=ENOSPC",
    "SIGKILL": "signal=SIGKILL",
}
# Whose calls: the phase in which the tracer is attached, and the threads it is put on.
GROUPS = {
    "open": ("open", "MainThread"),
    "writer": ("write", "log-writer"),
    "publisher": ("write", "log-publisher"),
    "flushers": ("write", "log-flush"),
    "close": ("close", "MainThread"),
}
MOST = 8  # of one kind of call in one group; beyond it, a sample
LEAVES = [b"leaf %d" % number for number in range(302)]


@dataclass(frozen=True)
class Strike:
    """Which call fails how; None for an undisturbed run."""

    group: str
    call: str = ""
    number: int = 0
    fault: str = ""

    @property
    def options(self) -> list[str]:
        if not self.call:
            return []
        how = f"inject={self.call}:{FAULTS[self.fault]}:when={self.number}"
        return ["-e", how]


@dataclass
class Outcome:
    """What a writer said, and what its tracer saw."""

    code: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)
    signed: list[bytes] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)

    def note(self, line: str) -> None:
        kind, *words = line.split(" ")
        match kind:
            case "ack":
                places = zip(itertools.count(int(words[0])), words[1:], strict=False)
                self.acknowledged.update((one, int(place)) for one, place in places)
            case "signed":
                self.signed.append(base64.b64decode(words[0]))
            case "refused":
                self.refused.append(words[0])
            case "exit":
                self.code = int(words[0])
            case _:
                raise AssertionError(line)


class Factory:
    """The process that forks writers, and the tracer that is put on them."""

    def __init__(self, folder: Path) -> None:
        self._trace = folder / "trace"
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
            )
        self._lines = self._channel.makefile("r")

    def run(self, data_dir: Path, strike: Strike) -> Outcome:
        """Run one writer to its end."""
        phase, threads = GROUPS[strike.group]
        self._say(f"{phase} {data_dir}")
        outcome = Outcome()
        while not (line := self._lines.readline()).startswith("threads "):
            outcome.note(line.rstrip("\n"))
        known = [one.rsplit("=", 1) for one in line.split()[1:]]
        traced = [tid for name, tid in known if name.startswith(threads)]
        assert traced, line
        with self._attach(traced, strike) as tracer:
            self._say("go")
            while not (line := self._lines.readline()).startswith("exit"):
                outcome.note(line.rstrip("\n"))
            outcome.note(line.rstrip("\n"))
            tracer.wait()
        outcome.calls = self._count()
        return outcome

    def _say(self, text: str) -> None:
        self._channel.sendall(f"{text}\n".encode())

    def _attach(self, threads: list[str], strike: Strike) -> subprocess.Popen[str]:
        which = [word for tid in threads for word in ("-p", tid)]
        options = ["-o", str(self._trace), "-e", f"trace={CALLS}", *strike.options]
        tracer = subprocess.Popen(
            [str(STRACE), *which, *options], stderr=subprocess.PIPE, text=True
        )
        assert tracer.stderr is not None
        for _ in threads:
            assert "attached" in tracer.stderr.readline()
        return tracer

    def _count(self) -> Counter[str]:
        """Return the most calls of each kind that any one thread made."""
        counts: Counter[tuple[str, str]] = Counter()
        pattern = re.compile(r"(?:(\d+) +)?(\w+)\(")
        for line in self._trace.read_text().splitlines():
            if match := pattern.match(line):
                counts[match.groups("")] += 1
        most: Counter[str] = Counter()
        for (_, call), count in counts.items():
            most[call] = max(most[call], count)
        return most

    def close(self) -> None:
        self._channel.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._channel.close()
        self._process.wait(60)


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    made = Factory(tmp_path_factory.mktemp("factory"))
    yield made
    made.close()


def digest_of(folder: Path) -> dict[str, str]:
    """Return what lies in a folder, but for SQLite's shared memory, which is no data."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


def check_unharmed(
    data_dir: Path, outcome: Outcome, key: LogKey, opener: Opener
) -> None:
    """Nothing acknowledged is lost, nothing is forked, and the log goes on."""
    before = digest_of(data_dir)
    try:
        report = fsck_log(data_dir, key.policy)
        assert report.is_sound, [str(one) for one in report.findings]
        assert report.size + (report.unpublished or 0) >= len(outcome.acknowledged)
    except UsageError:  # it was struck before there was anything
        assert not outcome.acknowledged
    assert digest_of(data_dir) == before
    signed = list(outcome.signed)

    def sign(body: bytes) -> bytes:
        signed.append(body)
        return key.sign(body)

    with opener(data_dir, sign=sign) as log:
        for number, place in outcome.acknowledged.items():
            assert log.leaf(place) == b"leaf %d" % number
            assert log.find_label(f"task-{number}") == [place]
        places = log.append_many(LEAVES)
        log.wait_published(max(places), 60)
        check_proof(log.proof(301), log.leaf(301), key.policy)
    assert sorted(places) == list(range(302))
    assert verify_log(data_dir, key.policy).size == 302
    sizes = [body.split(b"\n")[1:3] for body in signed]
    assert len({size for size, _ in sizes}) == len({tuple(one) for one in sizes})


def strike_all(
    factory: Factory, folder: Path, strikes: list[Strike], key: LogKey, opener: Opener
) -> None:
    for strike in strikes:
        data_dir = folder / "struck"
        outcome = factory.run(data_dir, strike)
        try:
            assert outcome.code in {0, -9}
            data_dir.mkdir(exist_ok=True)
            check_unharmed(data_dir, outcome, key, opener)
        except AssertionError as error:
            raise AssertionError(strike, outcome.refused) from error
        shutil.rmtree(data_dir)


def sample(most: int) -> list[int]:
    """Return every number up to `most`, or `MOST` of them with the first and last."""
    if most <= MOST:
        return list(range(1, most + 1))
    return sorted({1 + round(step * (most - 1) / (MOST - 1)) for step in range(MOST)})


def test_undisturbed_writer_is_sound_and_makes_every_kind_of_call(
    factory: Factory, tmp_path: Path, key: LogKey, open_log: Opener
) -> None:
    """The control, and the proof that each group has something to strike."""
    seen: set[str] = set()
    for group in GROUPS:
        outcome = factory.run(tmp_path / group, Strike(group))
        assert (outcome.code, outcome.refused) == (0, [])
        assert len(outcome.acknowledged) == 302
        assert outcome.calls["close"] + outcome.calls["pwrite64"] > 0, group
        check_unharmed(tmp_path / group, outcome, key, open_log)
        seen |= set(outcome.calls)
    assert {"write", "pwrite64", "fsync", "fdatasync", "openat", "close"} <= seen
    assert seen & {"rename", "renameat", "renameat2"}
    assert seen & {"mkdir", "mkdirat"}
    assert seen & {"unlink", "unlinkat"}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_struck_call_of_each_group_loses_nothing(
    factory: Factory, tmp_path: Path, key: LogKey, open_log: Opener, fault: str
) -> None:
    strikes = [
        Strike("open", "fdatasync", 9, fault),
        Strike("writer", "pwrite64", 9, fault),
        Strike("publisher", "fsync", 7, fault),
        Strike("flushers", "write", 1, fault),
    ]
    strike_all(factory, tmp_path, strikes, key, open_log)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("group", GROUPS)
def test_every_kind_of_struck_call_loses_nothing(
    factory: Factory,
    tmp_path: Path,
    key: LogKey,
    open_log: Opener,
    group: str,
    fault: str,
) -> None:
    calls = factory.run(tmp_path / "undisturbed", Strike(group)).calls
    assert calls
    strikes = [
        Strike(group, call, number, fault)
        for call, most in sorted(calls.items())
        for number in sample(most)
    ]
    strike_all(factory, tmp_path, strikes, key, open_log)


def test_strike_that_is_not_noticed_fails_the_check(
    factory: Factory, tmp_path: Path, key: LogKey, open_log: Opener
) -> None:
    """The negative control: an acknowledged leaf that is not there is found out."""
    outcome = factory.run(tmp_path / "control", Strike("open"))
    outcome.acknowledged[302] = 302
    with pytest.raises(AssertionError):
        check_unharmed(tmp_path / "control", outcome, key, open_log)
