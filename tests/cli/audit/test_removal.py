"""`stoilo audit revoke` beside a real server, and while it rests."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stoilo.audit.read.reader import verify_log
from stoilo.cli.main import cli
from stoilo.core.errors import UsageError, WaitError
from stoilo.signer.development.changes import offline_list
from stoilo.testing.deployment import Deployment
from tests.support.gate import GateBench

DIGEST, FLAVOR = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose server does not run."""
    data = tmp_path_factory.mktemp("data")
    GateBench(data / "keys")
    return data


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["audit", *words, "--json"])


def refusal(result: Result) -> str:
    assert isinstance(result.exception, UsageError)
    return result.exception.code


def shown(data: Path) -> dict[str, dict[str, object]]:
    return json.loads(call("revoke", "--list", "--data", str(data)).stdout)


def test_wish_is_kept_until_the_server_starts(resting: Path) -> None:
    done = call("revoke", "--data", str(resting), "--digest", DIGEST, "--epoch", "4")
    assert json.loads(done.stdout) == {"in_force": False, "sequence": None}
    assert shown(resting)["waiting"]["digests"] == [DIGEST]
    assert shown(resting)["online"] is None


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], "STO-U003"),
        (["--digest", "A" * 64], "STO-U003"),
        (["--epoch", "0"], "STO-U003"),
        (["--remove", "--epoch", "4"], "STO-U003"),
        (["--settle"], "STO-U003"),
        (["--replace-online-key"], "STO-U003"),
        (["--offline", "--remove", "--epoch", "77"], "STO-K054"),
    ],
)
def test_wrong_wish_is_refused(resting: Path, words: list[str], code: str) -> None:
    assert refusal(call("revoke", "--data", str(resting), *words)) == code


def test_other_directory_is_refused(tmp_path: Path) -> None:
    assert (
        refusal(call("revoke", "--data", str(tmp_path), "--epoch", "1")) == "STO-U004"
    )


def test_offline_list_grows_and_shrinks(resting: Path) -> None:
    words = ["revoke", "--data", str(resting), "--offline", "--flavor", FLAVOR]
    assert json.loads(call(*words).stdout)["offline"]["flavors"] == [FLAVOR]
    assert json.loads(call(*words, "--remove").stdout)["offline"]["flavors"] == []


def test_replaced_online_key_is_named_by_the_offline_list(resting: Path) -> None:
    before = offline_list(resting / "keys").keys
    done = call("revoke", "--data", str(resting), "--offline", "--replace-online-key")
    assert done.exit_code == 0
    after = offline_list(resting / "keys").keys
    assert len(after) == 1
    assert after != before


def test_running_server_puts_it_into_force_and_the_ceremony_takes_it_back(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with Deployment(data):
        done = call("revoke", "--data", str(data), "--digest", DIGEST, "--gate")
        assert json.loads(done.stdout) == {"in_force": True, "sequence": 2}
        online = shown(data)["online"]
        assert (online["digests"], online["min_epoch"]) == ([DIGEST], 3)
        words = ["--offline", "--remove", "--digest", DIGEST]
        done = call("revoke", "--data", str(data), *words)
        assert json.loads(done.stdout)["offline"]["digests"] == []
        done = call("revoke", "--data", str(data), "--epoch", "9")
        assert json.loads(done.stdout)["in_force"]
        online = shown(data)["online"]
        assert (online["digests"], online["epochs"], online["base"]) == ([], [9], 2)


@pytest.mark.slow
def test_wish_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    data = tmp_path / "data"
    deployment = Deployment(data)
    deployment.start()
    for number in range(1, 6):
        words = ["--wait", "0", "--epoch", str(100 + number)]
        done = call("revoke", "--data", str(data), *words)
        assert isinstance(done.exception, WaitError) or done.exit_code == 0
        time.sleep(number * 0.13)  # before, while and after it is taken up
        deployment.kill()
        deployment.start()
        found = shown(data)
        assert found["waiting"] is None
        epochs = found["online"]["epochs"]
        assert epochs == list(range(101, 101 + number))
    deployment.stop()
    assert verify_log(str(data)).size > 0
