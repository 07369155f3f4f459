"""Reading a log of 1,000,000 leaves: proofs, verification, the check before starting.

The log is built once, by the real writer, in a temporary directory. Memory is the peak
of a fresh process, less that of one that only imports the same modules.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.log_appends import OUTPUT, make_leaf, run_submitters
from bench.rows import Row
from stoilo.audit.format.proof import check_proof
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.reader import open_log, verify_log
from tests.support.faulty_log import LogKey

LEAVES = 1_000_000
FEW = 100_000
PROOFS = 200
KEY = LogKey("bench.test/log")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one fresh process needed.

    Attributes:
        seconds: for the work alone.
        mebibytes: its peak memory, all of the process.
    """

    seconds: float
    mebibytes: float


def open_bench_log(place: Path, settings: SequencerSettings | None = None) -> Sequencer:
    """Open the log of a data directory with the bench's key."""
    return Sequencer.open(
        place, KEY.origin, KEY.sign, policy=KEY.policy, settings=settings
    )


def build_log(place: Path, leaves: int) -> None:
    """Write and publish a log of so many leaves."""
    settings = SequencerSettings(batch_leaves=10_000, busy_interval_s=2, close_s=600)
    with open_bench_log(place, settings) as log:
        for start in range(0, leaves, 10_000):
            end = min(start + 10_000, leaves)
            log.append_many([make_leaf(number) for number in range(start, end)])
        log.wait_published(leaves - 1, 600)


def _work(kind: str, place: Path) -> Callable[[], object]:
    if kind == "data":
        return lambda: verify_log(place, KEY.policy)
    if kind == "log":
        return lambda: verify_log(place / "audit" / "log", KEY.policy)
    if kind == "start":
        return lambda: open_bench_log(place).close()
    return lambda: None


def read_once(kind: str, place: Path) -> Reading:
    """Do one kind of reading in this process: ``data``, ``log``, ``start``, ``nothing``."""
    began = time.perf_counter()
    _work(kind, place)()
    seconds = time.perf_counter() - began
    return Reading(seconds, _peak_mebibytes())


def _peak_mebibytes() -> float:
    """Return this process's peak memory since it was started, MiB.

    Not `getrusage`: what the parent had before ``exec`` counts there too.
    """
    status = Path("/proc/self/status").read_text()
    line = next(one for one in status.splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _apart(kind: str, place: Path) -> Reading:
    """Do one kind of reading in a fresh process."""
    command = [sys.executable, "-m", "bench.log_reading", kind, str(place)]
    done = subprocess.run(command, check=True, capture_output=True)
    return Reading(**json.loads(done.stdout))


def _milliseconds(work: Callable[[int], object], indices: list[int]) -> float:
    """Return the median time of `work` over `indices`, ms."""
    times = []
    for index in indices:
        began = time.perf_counter()
        work(index)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def measure(leaves: int = LEAVES, few: int = FEW) -> list[Row]:
    """Build a large and a small log and read them."""
    OUTPUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        large, small = Path(folder) / "large", Path(folder) / "small"
        build_log(large, leaves)
        build_log(small, few)
        return [
            *_proof_rows(large, leaves),
            *_whole_rows(large, leaves),
            *_memory_rows(large, small, leaves, few),
            _append_row(large, small, leaves, few),
        ]


def _proof_rows(place: Path, leaves: int) -> list[Row]:
    indices = random.Random(1).sample(range(leaves), PROOFS)  # noqa: S311 - repeatable
    with open_bench_log(place) as log:
        proofs = {index: log.proof(index) for index in indices}
        served = _milliseconds(log.proof, indices)

    def prove(index: int) -> object:
        return open_log(place, KEY.policy).prove(index)

    def check(index: int) -> object:
        return check_proof(proofs[index], make_leaf(index), KEY.policy)

    cold = _milliseconds(prove, indices)
    checked = _milliseconds(check, indices)
    return [
        Row(f"prove one of {leaves:,} leaves: log opened, checked and read anew", cold,
            "ms", target="<= 5 ms", met=cold <= 5),
        Row(f"prove one of {leaves:,} leaves: the running server", served, "ms",
            target="<= 5 ms", met=served <= 5),
        Row(f"verify one proof, log of {leaves:,}", checked, "ms", target="<= 1 ms",
            met=checked <= 1),
    ]  # fmt: skip


def _whole_rows(place: Path, leaves: int) -> list[Row]:
    published, whole, start = (_apart(kind, place) for kind in ("log", "data", "start"))
    return [
        Row(f"verify a published log of {leaves:,}, every entry", published.seconds,
            "s", target="<= 20 s", met=published.seconds <= 20),
        Row(f"verify a data directory of {leaves:,}: log, databases, indexes",
            whole.seconds, "s", target="<= 20 s", met=whole.seconds <= 20),
        Row(f"open a log of {leaves:,}: the check before starting", start.seconds, "s"),
    ]  # fmt: skip


def _memory_rows(large: Path, small: Path, leaves: int, few: int) -> list[Row]:
    idle = _apart("nothing", small).mebibytes
    rows = []
    for kind, name in (("data", "verifying"), ("start", "starting")):
        most = _apart(kind, large).mebibytes - idle
        least = _apart(kind, small).mebibytes - idle
        flat = most <= 1.25 * least + 2
        rows.append(
            Row(f"memory of {name} a log of {leaves:,}", most, "MiB",
                f"a log of {few:,}", least, most / max(least, 0.1), "times as much",
                "flat: <= 1.25x + 2 MiB", flat)
        )  # fmt: skip
    return rows


def _append_row(large: Path, small: Path, leaves: int, few: int) -> Row:
    """Return how a log's size slows appending down."""
    rates: dict[Path, list[float]] = {large: [], small: []}
    for turn in range(3):
        for place in (large, small):
            with open_bench_log(place) as log:
                rates[place].append(run_submitters(log.append, -9 - turn, 250).rate)
    most, least = (statistics.median(rates[place]) for place in (large, small))
    return Row(f"log appends, 64 submitters, log of {leaves:,}", most, "1/s",
               f"log of {few:,}", least, most / least, "times as fast")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("place", type=Path)
    arguments = parser.parse_args()
    print(json.dumps(asdict(read_once(arguments.kind, arguments.place))))
