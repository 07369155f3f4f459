"""One admission's wait for its cosigned checkpoint: two witness processes, quorum two.

Real parts: the log, its signer process, two `stoilo audit witness` processes over HTTP. At
rest means that nothing was published within the last interval; back to back is what a
lone submitter sees who waits for each leaf.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from bench.rows import Row
from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.log.batching import SequencerSettings
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.witness.client import Cosigner, read_witnesses, with_log
from stoilo.server.app.audit_log import WITNESSED_INTERVAL_S
from stoilo.signer.process.client import CheckpointSigner, SignerClient, SignerProcess
from stoilo.testing.witness import WitnessProcess, write_log_policy
from tests.support.gate import GateBench

ORIGIN = "log.example/bench"
MOST_S = 2.0


def measure(calls: int = 40, rest_s: float = 2 * WITNESSED_INTERVAL_S) -> list[Row]:
    """Return the rows."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gate = GateBench(folder / "keys", origin=ORIGIN, now=int(time.time()))
        witnesses = [
            stack.enter_context(
                WitnessProcess(folder / name, f"bench/{name}", [gate.root.log_vkey])
            )
            for name in ("w1", "w2")
        ]
        file = write_log_policy(folder / "policy", witnesses, 2)
        policy = with_log(read_witnesses(str(file)), gate.root.log_vkey)
        log = open_log(stack, folder, gate, policy)
        at_rest = [wait_once(log, b"rest %d" % n, rest_s) for n in range(calls)]
        lone = [wait_once(log, b"lone %d" % n, 0) for n in range(calls)]
    return [
        _row("a leaf at rest until two witnesses cosigned it", at_rest),
        _row("a leaf after another until two witnesses cosigned it", lone),
    ]


def open_log(
    stack: ExitStack, folder: Path, gate: GateBench, policy: LogPolicy
) -> Sequencer:
    """Open the log as `stoilo up` does."""
    socket, data = folder / "s", folder / "data"
    stack.enter_context(SignerProcess(gate.root.directory, socket))
    client = stack.enter_context(SignerClient(socket))
    cosigner = stack.enter_context(closing(Cosigner(policy)))
    pace = SequencerSettings(
        publish_interval_s=WITNESSED_INTERVAL_S, busy_interval_s=WITNESSED_INTERVAL_S
    )
    return stack.enter_context(
        Sequencer.open(
            data,
            ORIGIN,
            CheckpointSigner(client, data / "audit" / "log"),
            policy=policy,
            cosign=cosigner,
            settings=pace,
        )
    )


def wait_once(log: Sequencer, leaf: bytes, rest_s: float) -> float:
    """Return how long one leaf waits for its checkpoint, s, after some rest."""
    time.sleep(rest_s)
    began = time.perf_counter()
    log.wait_published(log.append(leaf), 60)
    return time.perf_counter() - began


def _row(name: str, times: list[float]) -> Row:
    slowest = max(times)
    return Row(
        name=f"{name} (slowest {slowest * 1e3:,.0f} ms)",
        ours=statistics.median(times) * 1e3,
        unit="ms",
        target=f"≤ {MOST_S:g} s",
        met=slowest <= MOST_S,
    )
