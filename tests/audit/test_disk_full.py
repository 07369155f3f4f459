"""A disk that fills up at every step of a log's work: refusals with codes, nothing lost.

The log lies on a small tmpfs of a private mount namespace. Where that cannot be made,
`test_faults` strikes every step with the same error instead.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "full_disk.py"
SIZE_MIB = 8


def may_mount() -> bool:
    """Whether this machine lets us make a private mount namespace with a tmpfs."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m none /mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not may_mount(), reason="needs root and unshare for a small disk of its own"
)


def rounds(tmp_path: Path, step_kib: int, most_kib: int) -> Iterator[dict[str, object]]:
    mount = f"mount -t tmpfs -o size={SIZE_MIB}m stoilo {tmp_path}"
    start = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "up", sys.executable]
    done = subprocess.run(
        [*start, str(PROGRAM), str(tmp_path), str(step_kib), str(most_kib)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    yield from map(json.loads, done.stdout.splitlines())


def check(found: list[dict[str, object]]) -> None:
    for one in found:
        assert one["faults"] == [], one
        assert one["kept"] is True, one
    codes = {code for one in found for code in one["codes"]}
    assert "STO-R030" in codes  # refused, acknowledging nothing
    # The others: published later; a database that could not be made where none was yet.
    assert codes <= {"STO-R030", "STO-L056", "STO-L051"}, codes


def test_disk_full_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    check(list(rounds(tmp_path, 40, 200)))


@pytest.mark.slow
def test_disk_full_at_every_step_loses_nothing(tmp_path: Path) -> None:
    found = list(rounds(tmp_path, 4, 400))
    check(found)
    # Some rounds ran out while appending, some while publishing, some not at all.
    assert any(one["codes"] == [] for one in found)
    assert any("STO-L056" in one["codes"] for one in found)
