"""What each of our settings for torch costs: plain torch in processes of its own.

No sandbox here; one thread is measured in processor time. Each row is one training program
under one setting, against torch as it comes with one thread; docs/adr/0012-torch.md says
why the settings are as they are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from bench.rows import Row

__all__ = ["measure"]

PROGRAMS = ("convolutions", "matrices", "attention", "recurrent")
SCRIPT = """
import json, sys, time
import torch
from torch import nn
torch.set_num_threads(int(sys.argv[1]))
torch.backends.mkldnn.set_flags(sys.argv[2] == "on")
torch.manual_seed(0)

def step_of(net, *inputs):
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    def step():
        optimizer.zero_grad()
        found = net(*inputs)
        (found[0] if isinstance(found, tuple) else found).square().mean().backward()
        optimizer.step()
    return step

convolutions = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(64, 10))
matrices = nn.Sequential(nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 512))
attention = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
steps = {
    "convolutions": step_of(convolutions, torch.randn(16, 3, 32, 32)),
    "matrices": step_of(matrices, torch.randn(256, 512)),
    "attention": step_of(attention, torch.randn(8, 64, 128)),
    "recurrent": step_of(nn.LSTM(64, 128, batch_first=True), torch.randn(16, 40, 64)),
}
clock = time.process_time if sys.argv[1] == "1" else time.perf_counter
best = {}
for name, step in steps.items():
    step()
    times = []
    for _ in range(7):
        start = clock()
        step()
        times.append(clock() - start)
    best[name] = min(times) * 1000
print(json.dumps(best))
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run torch.

    Attributes:
        name: what is different from torch as it comes.
        threads: how many.
        onednn: ``on`` or ``off``.
        environment: further variables.
    """

    name: str
    threads: int = 1
    onednn: str = "off"
    environment: tuple[tuple[str, str], ...] = ()


_AVX2 = ("ATEN_CPU_CAPABILITY", "avx2")
AS_IT_COMES = Setting("as it comes", onednn="on")
SETTINGS = (
    Setting("oneDNN off"),
    Setting("oneDNN off, AVX2", environment=(_AVX2,)),
    Setting("ours: and MKL on AVX2", environment=(_AVX2, ("MKL_CBWR", "AVX2"))),
    Setting("or MKL compatible", environment=(_AVX2, ("MKL_CBWR", "COMPATIBLE"))),
    Setting("ours, two threads", 2, environment=(_AVX2, ("MKL_CBWR", "AVX2"))),
    Setting("as it comes, two threads", 2, "on"),
)


def run(setting: Setting) -> dict[str, float]:
    """Return the best time of a step of each program, ms."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(setting.threads), setting.onednn],
        env={"OMP_NUM_THREADS": str(setting.threads), **dict(setting.environment)},
        capture_output=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(rounds: int = 3) -> list[Row]:
    """Return a row for each setting and program."""
    every = (AS_IT_COMES, *SETTINGS)
    seen = [{setting: run(setting) for setting in every} for _ in range(rounds)]
    best = {
        setting: {name: min(one[setting][name] for one in seen) for name in PROGRAMS}
        for setting in every
    }
    return [
        Row(
            name=f"torch, {setting.name}: {name}",
            ours=best[setting][name],
            unit="ms",
            peer_name="as it comes, one thread",
            peer=best[AS_IT_COMES][name],
            ratio=best[setting][name] / best[AS_IT_COMES][name],
            ratio_of="of it",
        )
        for setting in SETTINGS
        for name in PROGRAMS
    ]
