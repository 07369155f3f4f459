"""Fill a small disk at every distance from full, and write a log on it meanwhile.

    full_disk.py DIR STEP_KIB MOST_KIB

DIR is a tmpfs of a few MiB. For every amount of room, from none to MOST_KIB: a log with
300 published leaves, a disk filled up to that room, more leaves until something is
refused, a check of all that lies there, room again, and on. One JSON line a round.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from tests.support.faulty_log import LogKey
from stoilo.audit.log.fsck import fsck_log
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.core.errors import StoiloError

disk, step, most = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
key = LogKey("log.test/t")
settings = SequencerSettings(publish_interval_s=0, retry_s=0.01, close_s=2)


def fill(room: int) -> None:
    with (disk / "filler").open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(4096))
        except OSError:
            pass
        file.truncate(max(file.tell() - room, 0))


def open_log(data_dir: Path) -> Sequencer:
    return Sequencer.open(
        data_dir, key.origin, key.sign, policy=key.policy, settings=settings
    )


def append_until_refused(log: Sequencer) -> tuple[dict[bytes, int], list[str]]:
    """Append and publish; return what was acknowledged, and the refusals."""
    acknowledged: dict[bytes, int] = {}
    codes: list[str] = []
    for batch in range(4):
        leaves = [b"%d " % number + bytes(200) for number in range(batch * 80, batch * 80 + 80)]
        try:
            places = log.append_many(leaves)
            acknowledged.update(zip(leaves, places, strict=True))
            log.wait_published(places[-1], 0.1)
        except StoiloError as error:
            codes.append(error.code)
    return acknowledged, codes


def run(room: int) -> dict[str, object]:
    data_dir = disk / "data"
    with open_log(data_dir) as log:
        log.append_many([b"leaf %d" % number for number in range(300)])
        log.wait_published(299, 60)
        fill(room)
        acknowledged, codes = append_until_refused(log)
        faults = [str(one) for one in fsck_log(data_dir, key.policy).findings if one.severity == "fault"]
        (disk / "filler").unlink()
        places = log.append_many(list(acknowledged) + [b"room again"])
        log.wait_published(max(places), 60)
        kept = all(log.leaf(at) == leaf for leaf, at in acknowledged.items())
        kept = kept and places[:-1] == list(acknowledged.values())
    faults += [str(one) for one in fsck_log(data_dir, key.policy).findings]
    shutil.rmtree(data_dir)
    return {"room": room, "codes": codes, "faults": faults, "kept": kept,
            "acknowledged": len(acknowledged)}


def start_on_a_full_disk(room: int) -> dict[str, object]:
    """Begin a log where there is hardly any room; it must begin later all the same."""
    data_dir = disk / "data"
    fill(room)
    codes = []
    try:
        with open_log(data_dir) as log:
            log.append(b"first")
            log.wait_published(0, 0.1)
    except StoiloError as error:
        codes.append(error.code)
    (disk / "filler").unlink()
    with open_log(data_dir) as log:
        log.wait_published(log.append(b"first"), 60)
    faults = [str(one) for one in fsck_log(data_dir, key.policy).findings if one.severity == "fault"]
    shutil.rmtree(data_dir)
    return {"room": room, "codes": codes, "faults": faults, "kept": True, "acknowledged": 0}


for kib in range(0, most + 1, step):
    print(json.dumps(run(kib * 1024)), flush=True)
    print(json.dumps(start_on_a_full_disk(kib * 1024)), flush=True)
