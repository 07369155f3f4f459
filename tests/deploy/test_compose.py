"""The compose file: what it names exists, what it opens is loopback, what it runs works.

There are no containers here: the same commands run as plain processes, with a MariaDB of
their own, in place of each other's names for files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode
from stoilo.core.listen import parse_address
from stoilo.server.config import load_config
from stoilo.testing.deployment import Deployment
from tests.support.mariadb import MariaServer
from tests.support.wire import RawClient

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "compose"
COMPOSE = json.loads((FOLDER / "compose.json").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if one["image"] == "stoilo"}
VOLUNTEERS = [name for name in SERVICES if name.startswith("volunteer")]


def test_three_volunteers_one_server_one_database() -> None:
    assert VOLUNTEERS == ["volunteer1", "volunteer2", "volunteer3"]
    assert {"server", "mariadb"} <= set(SERVICES)


def test_every_name_that_is_used_is_there() -> None:
    for one in SERVICES.values():
        assert set(one.get("depends_on", {})) <= set(SERVICES)
        assert {text.split(":")[0] for text in one["volumes"]} <= set(
            COMPOSE["volumes"]
        )
    for one in OURS.values():
        assert (FOLDER / one["build"]["context"] / one["build"]["dockerfile"]).is_file()


def test_our_containers_hold_no_privilege() -> None:
    for one in OURS.values():
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        assert one["read_only"] is True
        assert "privileged" not in one


def test_only_loopback_is_opened() -> None:
    environment = OURS["server"]["environment"]
    config, _ = load_config(Path("/nowhere"), {}, environment)
    for address in (config.grpc, config.http, config.watch):
        assert parse_address(address).loopback
    for one in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ()))


def test_no_volunteer_sees_another_ones_key_or_the_servers_files() -> None:
    for name in VOLUNTEERS:
        number = name[-1]
        mounted = {text.split(":")[0] for text in SERVICES[name]["volumes"]}
        assert mounted == {name, f"shared{number}"}


def test_example_settings_are_read_and_fit_each_other() -> None:
    lines = (FOLDER / "secrets.example.env").read_text().split()
    given = dict(line.split("=", 1) for line in lines)
    config, _ = load_config(Path("/nowhere"), {}, given)
    port = SERVICES["mariadb"]["ports"][0].split(":")[1]
    password = given["MARIADB_PASSWORD"]
    assert f":{password}@127.0.0.1:{port}/stoilo" in config.engine_database_url


def test_image_is_built_with_pip_only_and_runs_as_nobody_special() -> None:
    text = (ROOT / "deploy" / "container" / "Containerfile").read_text()
    copied = re.findall(r"-r (\S+)", text)
    assert all((ROOT / name).is_file() for name in copied)
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["5701:5701"]
    assert not re.search(r"curl|wget|git clone|ADD ", text)
    words = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME"}
    words |= {"ENTRYPOINT", "CMD"}
    joined = text.replace("\\\n", " ").splitlines()
    lines = [line for line in joined if line and line[0] != "#"]
    assert {line.split()[0] for line in lines} <= words


@contextmanager
def volunteer(name: str, place: Path, url: str, project: str) -> Iterator[None]:
    """Run a volunteer's account and itself as the file says, paths exchanged."""
    number = name[-1]
    shared, state = place / f"shared{number}", place / name
    shared.mkdir()
    paths = {
        "/var/lib/stoilo/data": str(place / "data"),
        "/shared": str(shared),
        "/var/lib/stoilo/state": str(state),
        "http://127.0.0.1:57080/": project,
    }

    def here(text: str) -> str:
        for old, new in paths.items():
            text = text.replace(old, new)
        return text

    folder = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    environ |= {"STOILO_SERVER_DATABASE": url}
    account = SERVICES[f"account{number}"]
    words = [*account["entrypoint"], *map(here, account["command"])]
    subprocess.run(words, check=True, env=environ)
    command = [sys.executable, "-m", "stoilo", *map(here, SERVICES[name]["command"])]
    with (place / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_its_commands_run_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MariaServer() as database, ExitStack() as stack:
        url = database.create_database()
        monkeypatch.setenv("STOILO_SERVER_DATABASE", url)
        monkeypatch.setenv("STOILO_SERVER_WATCH", "127.0.0.1:0")
        server = stack.enter_context(Deployment(tmp_path / "data"))
        for name in VOLUNTEERS:
            project = str(server.line.project)
            stack.enter_context(volunteer(name, tmp_path, url, project))
        with RawClient(Path(server.line.connection)) as client:
            answer = client.wait(client.submit(), 120.0)
            assert (answer.state, decode(answer.value)) == ("succeeded", 42)
