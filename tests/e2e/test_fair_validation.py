"""One account's slow validators on a real server: nobody waits, and cancel ends them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode, encode
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
from victims import MARKS, children, command, descendants

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PATIENCE_S = 240.0
BUSY_TICKS = 10
ITEMS = 40
SLOW = b"def check(value):\n    for _ in range(80_000_000):\n        pass\n    return True\n"
QUICK = b"def check(value):\n    return value == 42\n"


def account(deployment: Deployment, *words: str) -> dict[str, object]:
    told = subprocess.run(
        [sys.executable, "-m", "stoilo", "account", *words, "--json",
         "--data", str(deployment.data)],
        check=True,
        capture_output=True,
    ).stdout  # fmt: skip
    return dict(json.loads(told))


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path / "data", volunteers=2) as made:
        yield made


@pytest.fixture
def hostile(deployment: Deployment, tmp_path: Path) -> Iterator[RawClient]:
    place = tmp_path / "eve.json"
    account(deployment, "add", "eve", "--connection", str(place))
    with RawClient(place) as client:
        yield client


@pytest.fixture
def honest(deployment: Deployment) -> Iterator[RawClient]:
    assert deployment.line is not None
    with RawClient(Path(deployment.line.connection)) as client:
        yield client


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def ticks(pid: int) -> int:
    """Return the processor time that a process has used, 1/100 s; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11])


def is_judging(deployment: Deployment) -> bool:
    """Whether something works in the server's own jails; its volunteers have others.

    Between two calls nothing does, so it looks some times.
    """
    return any(is_busy(deployment) for _ in range(4))


def is_busy(deployment: Deployment) -> bool:
    zygotes = [
        one for one in children(deployment.pid) if MARKS["zygote"] in command(one)
    ]
    before = {pid: ticks(pid) for one in zygotes for pid in descendants(one)}
    time.sleep(0.7)
    return any(ticks(pid) - used > BUSY_TICKS for pid, used in before.items())


def restart(deployment: Deployment) -> None:
    deployment.kill()
    deployment.start()


def finish_one(client: RawClient) -> None:
    task_id = client.submit(validator_module=QUICK, init_entry="check")
    answer = client.wait(task_id, PATIENCE_S)
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)


def test_slow_validators_stop_nobody_and_end_with_their_task(
    deployment: Deployment, hostile: RawClient, honest: RawClient
) -> None:
    arguments = encode([{"x": number} for number in range(ITEMS)])
    slow = hostile.submit(
        arguments=arguments, map_items=ITEMS, validator_module=SLOW, init_entry="check"
    )
    until(lambda: is_judging(deployment))
    finish_one(honest)
    restart(deployment)
    until(lambda: is_judging(deployment))  # they are called again
    finish_one(honest)
    until(lambda: is_judging(deployment))  # still, whatever else the machine does
    assert hostile.poll(slow).state == "running"
    assert account(deployment, "suspend", "eve", "--cancel")["cancelled"] == 1
    until(lambda: not is_judging(deployment))
    assert hostile.poll(slow).state == "cancelled"
    assert hostile.create().code == "STO-R009"
    account(deployment, "token", "revoke", "eve", "--all")
    assert hostile.create().code == "STO-R001"
    restart(deployment)
    finish_one(honest)
    assert not is_judging(deployment)
