"""The thesis's listing 3, as printed, in a notebook shell against a real deployment."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stoilo
from stoilo.testing.deployment import Deployment

LISTING = Path(__file__).with_name("listing3.ipy")
PRELUDE = "server_address = {address!r}\n"
RESTORE = "import asyncio, stoilo\nasync def main():\n    async with await stoilo.connect() as conn:\n        print(await conn.restore_task({task!r}).result(timeout=60))\nasyncio.run(main())\n"  # noqa: E501 - a program in one string


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(
        tmp_path_factory.mktemp("listing") / "data", volunteers=2
    ) as running:
        yield running


@pytest.fixture(scope="module")
def printed(deployment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    program = folder / "listing3.ipy"
    program.write_text(PRELUDE.format(address=deployment.grpc) + LISTING.read_text())
    environ = os.environ | {
        "STOILO_CONNECTION": deployment.line.connection,
        "IPYTHONDIR": str(folder),
        "HOME": str(folder),
    }
    command = [
        sys.executable,
        "-m",
        "IPython",
        "--no-banner",
        "--simple-prompt",
        str(program),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), environ


def test_listing_prints_true_an_id_and_five(printed):
    unsubmitted, task_id, result = printed[0]
    assert (unsubmitted, result) == ("True", "5")
    assert len(task_id) == 32


def test_task_is_restored_by_another_process(printed):
    program = RESTORE.format(task=printed[0][1])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=printed[1],
        check=True,
    )
    assert done.stdout.strip() == "5"


def test_address_without_credentials_names_the_variable(deployment, monkeypatch):
    monkeypatch.delenv("STOILO_CONNECTION", raising=False)

    async def attempt():
        await stoilo.connect(deployment.grpc)

    with pytest.raises(stoilo.StoiloError, match="STOILO_CONNECTION"):
        asyncio.run(attempt())
