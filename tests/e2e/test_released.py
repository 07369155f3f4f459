"""`stoilo up` on a root that people signed: real processes, one story told in order."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoilo.audit.format.records import check_release_proof
from stoilo.core.codec.skeleton import decode
from stoilo.core.digests import content_digest
from stoilo.core.frozen_tree import platform_name
from stoilo.core.levels import load_levels
from stoilo.executor.verifier.targets import InstalledRelease, RevocationFile
from stoilo.flavors.manifest import find_flavor
from stoilo.policies.policy import default_policy
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST
from stoilo.signer.process.online_keys import make_online_keys
from stoilo.testing.deployment import Deployment
from tests.support.release import ReleasedProject, flavor_files
from tests.support.wire import RawClient

ORIGIN = "project.example/released"
ARCHIVE = b"an archive " * 1000
WAIT_S = 60.0


@dataclass
class Released:
    """A running server of a released project, and the project's people."""

    people: ReleasedProject
    deployment: Deployment
    client: RawClient

    def fetch(self, name: str) -> bytes:
        assert self.deployment.line is not None
        url = f"{self.deployment.line.http}release/{name}"
        with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own server
            return bytes(answer.read())

    def wait_for(self, sight: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not sight():
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    folder = tmp_path_factory.mktemp("released")
    parts = {}
    for name in ("pure", "numeric"):
        digest, platform = find_flavor(name).digest, platform_name()
        files = flavor_files(
            folder / "parts", name, digest, platform=platform, archive=ARCHIVE
        )
        parts |= files
    data = folder / "data"
    data.mkdir(mode=0o700)
    people = ReleasedProject(
        data / "keys",
        ORIGIN,
        InstalledRelease(load_levels(), LANGUAGE_DIGEST),
        policies=(default_policy().digest,),
        parts=parts,
    )
    people.publish(int(time.time()))
    with Deployment(data, volunteers=2) as deployment:
        assert deployment.line is not None
        with RawClient(Path(deployment.line.connection)) as client:
            yield Released(people, deployment, client)


def test_task_runs_under_the_released_root_with_its_flavor_s_archive(
    released: Released,
) -> None:
    answer = released.client.wait(released.client.submit())
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)
    engine = released.deployment.data / "engine" / "engine.sqlite"
    with closing(sqlite3.connect(f"file:{engine}?mode=ro", uri=True)) as database:
        row = database.execute("SELECT size FROM engine_file WHERE digest = ?",
                               [content_digest(ARCHIVE)]).fetchone()  # fmt: skip
    assert row == (len(ARCHIVE),)


def test_server_made_no_offline_key_and_no_root(released: Released) -> None:
    keys = released.people.directory
    assert not (keys / "offline").exists()
    assert (keys / "root.json").read_bytes() == released.fetch("metadata/1.root.json")
    assert not list((keys / "metadata").glob("2.root.json"))


def test_log_tells_of_the_release_and_proves_it(released: Released) -> None:
    log = released.people.trust(int(time.time())).log_policy
    released.wait_for((released.people.directory / "release.tlog-proof").exists)
    logged = check_release_proof(
        released.fetch("release.record.json"), released.fetch("release.tlog-proof"), log
    )
    named = {one.name: one.digest for one in logged.record.metadata}
    assert named["1.root.json"] == content_digest(released.fetch("root.json"))


def test_publication_is_noticed_verified_and_logged_without_a_restart(
    released: Released,
) -> None:
    digest = find_flavor("pure").digest
    released.people.denied = RevocationFile(flavors=(digest,))
    released.people.publish(int(time.time()), online_too=False)

    def is_refused() -> bool:
        answer = released.client.create(flavor="pure")
        assert answer.code in {"", "STO-K097"}
        return answer.code == "STO-K097"

    released.wait_for(is_refused)
    answer = released.client.wait(released.client.submit(flavor="numeric"))
    assert answer.state == "succeeded"
    released.wait_for(
        lambda: b"2.revocation.json" in released.fetch("release.record.json")
    )


def test_new_flavor_can_be_asked_for_without_a_restart(released: Released) -> None:
    assert released.client.create(flavor="tensor").code == "STO-K097"
    released.people.parts = dict(released.people.parts) | flavor_files(
        released.deployment.data / "parts",
        "tensor",
        find_flavor("tensor").digest,
        platform=platform_name(),
        archive=ARCHIVE,
    )
    released.people.publish(int(time.time()), online_too=False)
    released.wait_for(lambda: released.client.create(flavor="tensor").status == "OK")
    released.wait_for(
        lambda: b"flavor/tensor/" in released.fetch("release.record.json")
    )


def test_status_is_public_and_good(released: Released) -> None:
    page = json.loads(released.fetch("status.json"))
    assert (page["state"], page["trouble"], page["origin"]) == ("ok", "", ORIGIN)


def test_server_whose_keys_wait_for_a_ceremony_says_what_to_do(tmp_path: Path) -> None:
    stoilo = [sys.executable, "-m", "stoilo.cli.main"]
    data = tmp_path / "data"
    make_online_keys(data / "keys", ORIGIN, int(time.time()))
    up = [
        *stoilo,
        "up",
        "--data",
        data,
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ]
    run = subprocess.run(up, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert "STO-K093" in run.stderr
    assert "stoilo release publish" in run.stderr


def test_other_policy_than_the_certified_one_does_not_start(tmp_path: Path) -> None:
    people = ReleasedProject(
        tmp_path / "data" / "keys",
        ORIGIN,
        InstalledRelease(load_levels(), LANGUAGE_DIGEST),
        policies=("0" * 64,),
    )
    people.publish(int(time.time()))
    deployment = Deployment(tmp_path / "data")
    command = deployment.command()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (4, "")
    assert "STO-K094" in run.stderr
