"""A whole release by commands alone: keys, builds, ceremony, publication, check."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoilo.cli.main import cli
from stoilo.signer.process.online_keys import make_online_keys, render_online_keys
from stoilo.testing.deployment import Deployment
from tests.support.stage import PASSPHRASE, ReleaseStage, write_build

PEOPLE = {
    "root": ("ada", "bo", "cy"),
    "targets": ("ada", "bo", "cy"),
    "gate": ("gil",),
    "policy": ("pia",),
    "reviewers": ("rex",),
    "revocation": ("vera",),
    "builder": ("bea", "ben"),
    "boinc": ("boris",),
}


LISTS = ("policy", "reviewers", "revocation")


def stoilo(*arguments: object, secret: bool = False, code: int = 0) -> str:
    """Run a command; `secret` gives it the passphrase through a descriptor."""
    words = [str(one) for one in arguments]
    out = -1
    if secret:
        out, into = os.pipe()
        os.write(into, PASSPHRASE.encode())
        os.close(into)
        words += ["--passphrase-fd", str(out)]
    try:
        result = CliRunner().invoke(cli, words)
    finally:
        if secret:
            os.close(out)
    assert result.exit_code == code, (words, result.output, result.exception)
    return result.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everybody's keys, a server's online keys, and two builders' equal builds."""
    folder = tmp_path_factory.mktemp("project")
    for role, names in PEOPLE.items():
        for name in names:
            words = ("release", "keygen", "--role", role, "--name", name)
            stoilo(*words, "--output", folder / name, "--rehearsal", secret=True)
    (folder / "data").mkdir(mode=0o700)
    keys = make_online_keys(
        folder / "data" / "keys", "project.example/log", int(time.time())
    )
    (folder / "online.json").write_bytes(render_online_keys(keys))
    return folder


def build(project: Path, root: Path) -> Path:
    """Let both builders build the verifier that knows `root`, and attest it."""
    made = ReleaseStage(rehearsal=True).make_parts(project / "made", root.read_bytes())
    write_build(project / "dist", made)
    for name in PEOPLE["builder"]:
        key = project / name / f"{name}.builder.key"
        stoilo("release", "sign", project / "dist", "--key", key, secret=True)
    return project / "dist"


def sign_and_publish(project: Path, stick: Path, *roles: str) -> None:
    """Sign copies of a ceremony, two people on two machines, and publish."""
    copies = [shutil.copytree(stick, f"{stick}-{number}") for number in (0, 1)]
    for role in roles:
        for number, name in enumerate(PEOPLE[role][:2]):
            key = project / name / f"{name}.{role}.key"
            words = ("release", "sign", copies[number], "--key", key, "--yes")
            stoilo(*words, secret=True)
    stoilo("release", "publish", *copies, "--data", project / "data")


def public(project: Path, role: str) -> list[object]:
    """Return the options that name a role's public keys."""
    return [
        word
        for name in PEOPLE[role]
        for word in (f"--{role}", project / name / f"{name}.{role}.pub")
    ]


@pytest.fixture(scope="module")
def published(project: Path) -> Path:
    """The server's data directory after both rounds: the root, then the parts."""
    stick = project / "stick"
    roles = [
        word for role in PEOPLE if role != "boinc" for word in public(project, role)
    ]
    online = ("--online", project / "online.json")
    stoilo("release", "init", stick, *roles, *online, "--rehearsal")
    sign_and_publish(project, stick, "root", "targets", "gate", *LISTS)
    dist = build(project, project / "data" / "keys" / "root.json")
    words = ("--release", project / "data", "--build", dist)
    stoilo("release", "request", project / "second", *words)
    sign_and_publish(project, project / "second", "targets", "boinc")
    return project / "data"


def test_release_by_many_hands_is_published_and_holds(published: Path) -> None:
    told = json.loads(stoilo("release", "verify", published, "--json"))
    assert told["rehearsal"]
    assert told["boinc_signed"]
    assert [part["builders"] for part in told["parts"]] == [["bea", "ben"]] * 2
    signers = {one["role"]: one["signers"] for one in told["roles"]}
    assert signers["root"] == signers["targets"] == ["ada", "bo"]
    text = stoilo("release", "verify", published)
    assert "built equal by bea, ben" in text
    assert "A rehearsal's root" in text


@pytest.mark.slow
def test_running_server_serves_a_release_that_holds_and_is_logged(
    published: Path,
) -> None:
    root = published / "keys" / "root.json"
    with Deployment(published, volunteers=0) as deployment:
        assert deployment.line is not None
        url = f"{deployment.line.http}release/"
        words = ["release", "verify", url, "--root", str(root), "--json"]
        deadline, told = time.monotonic() + 60, {}
        while not told.get("log") and time.monotonic() < deadline:
            told = json.loads(CliRunner().invoke(cli, words).stdout)
            time.sleep(0.5)
    assert told["root_given"]
    assert told["log"]["index"] < told["log"]["size"]
    assert stoilo("release", "verify", published, "--root", root)
