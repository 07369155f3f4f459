"""Run the demo with parts sabotaged: `python sabotaged_demo.py NAME…`."""

import contextlib
import dataclasses
import sys
import time
from pathlib import Path

import msgspec

from stoilo.audit.format.merkle import Checkpoint, render_checkpoint
from stoilo.audit.format.note import Note, render_note, sign_note
from stoilo.audit.log.seen import SeenStore
from stoilo.cli.demo import auditor
from stoilo.cli.demo.command import run_demo
from stoilo.cli.demo.parts import real_parts
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.run import probe_source
from stoilo.signer.key_files import read_private_key
from stoilo.testing.deployment import Deployment

REAL = real_parts()


class Immortal(Deployment):
    """A deployment whose server is never killed, and whose restart does nothing."""

    def kill(self):
        pass

    def start(self):
        return self.line if self.pid else super().start()


def start_honest_instead(deployment, state):
    return deployment.attach("honest@localhost.localdomain", state)


def flip_proof(data, task_id):
    proof = bytearray(REAL.prove_task(data, task_id))
    at = proof.index(b"\n\n") + 60
    proof[at] ^= 1
    return bytes(proof)


def flip_log_then_verify(data):
    bundle = next(
        path
        for path in Path(data).glob("audit/log/tile/entries/**/*")
        if path.is_file()
    )
    honest = bundle.read_bytes()
    content = bytearray(honest)
    content[40] ^= 1
    bundle.chmod(0o600)
    bundle.write_bytes(content)
    try:
        return REAL.verify_log(data)
    finally:
        bundle.write_bytes(honest)  # what comes after is no affair of this one


def probe_with_sockets_allowed(text):
    level = load_level("pure")
    calls = msgspec.structs.replace(
        level.syscalls, allow=(*level.syscalls.allow, "socket")
    )
    errno = {name: tuple(set(row) - {"socket"}) for name, row in calls.errno.items()}
    wide = msgspec.structs.replace(
        level, syscalls=msgspec.structs.replace(calls, errno=errno)
    )
    outcome = probe_source(text, wide, preload=("socket",))
    return {"status": outcome.status, "layer": outcome.layer, "error": outcome.error}


def benign_program(name):
    del name
    return "def main(kwargs):\n    return 1\n"


def wrong_wave(x: float) -> float:
    return x


def wrong_solve(kwargs):
    return kwargs["b"]


def hits_with_a_frozen_clock(kwargs):
    return kwargs["n"] if time.time() == time.time() else 0


def not_failing(kwargs):
    return kwargs["zero"]


def always_agree(_left, _right):
    return True


@contextlib.contextmanager
def no_witness(_folder, _deployment):
    yield


def watch_a_split_view(data, url):
    """Let one volunteer have seen another log, signed by the log's own key."""
    key = read_private_key(data / "keys/online/log.pem").key
    store = SeenStore.below(data)
    (row,) = store.rows(0, 1)
    origin = row.checkpoint.partition("\n")[0]
    body = render_checkpoint(Checkpoint(origin, 3, b"\7" * 32))
    note = render_note(Note(body, (sign_note(body, origin, key),)))
    store.put(msgspec.structs.replace(row, result="f" * 64, checkpoint=note.decode()))
    store.close()
    return REAL.watch_log(data, url)


def watch_without_records(data, url):
    """Show no record of a workunit, as who admits on the sly would have to."""
    honest = auditor.open_source

    def open_mute(location):
        source = honest(location)
        source.records_of = lambda _, entries: [None] * len(entries)
        source.record = lambda _: None
        return source

    auditor.open_source, auditor.PATIENCE_S = open_mute, 1.0
    return REAL.watch_log(data, url)


PARTS = {
    "records_withheld": {"watch_log": watch_without_records},
    "split_view": {"watch_log": watch_a_split_view},
    "no_witness": {"begin_witness": no_witness},
    "cosignature_kept": {"hide_witnesses": bytes},
    "cheat_off": {"start_cheat": start_honest_instead},
    "proof_flipped": {"prove_task": flip_proof},
    "log_bitflip": {"verify_log": flip_log_then_verify},
    "seccomp_widened": {"probe_program": probe_with_sockets_allowed},
    "server_immortal": {"deploy": Immortal},
    "benign_instead": {"read_program": benign_program},
}
RESEARCH = {
    "wrong_integrand": {"wave": wrong_wave},
    "wrong_solution": {"solve": wrong_solve},
    "items_differ": {"count_hits": hits_with_a_frozen_clock},
    "no_exception": {"failing": not_failing},
    "always_agree": {"never_agree": always_agree},
}

if __name__ == "__main__":
    parts = REAL
    for name in sys.argv[1:]:
        parts = dataclasses.replace(parts, **PARTS.get(name, {}))
        for function, other in RESEARCH.get(name, {}).items():
            setattr(parts.research, function, other)
    sys.exit(run_demo(parts, as_json=True))
