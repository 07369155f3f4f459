"""Launcher, frozen verifier and frozen flavor run the tasks of a released project."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode
from stoilo.core.frozen_tree import platform_name
from stoilo.executor.verifier.trust import installed_release
from stoilo.policies.policy import default_policy
from stoilo.testing.deployment import Deployment
from tests.support.programs import ProgramSigner
from tests.support.release import ReleasedProject
from tests.support.wire import RawClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ORIGIN = "project.example/frozen"
PLANT = Path(__file__).parents[1] / "executor" / "launcher" / "programs" / "plant.c"
PLANTED = ("libc.so.6", "libz.so.1", "libpython3.11.so.1.0", "libseccomp.so.2")
# A launcher among what a hostile server sends, with the variable that BOINC's client sets.
HOSTILE = """#!/bin/sh
mkdir -p ../../projects/p
for name in {names}; do
    for folder in . ../.. ../../projects/p; do cp '{library}' "$folder/$name"; done
done
LD_LIBRARY_PATH=../../projects/p:.:../.. exec '{launcher}' "$@"
"""
STOILO = (sys.executable, "-m", "stoilo")


def stoilo(*words: object) -> str:
    done = subprocess.run(
        [*STOILO, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Chain:
    """A server, and what its project built and published."""

    deployment: Deployment
    client: RawClient
    build: Path
    root: Path
    states: list[Path]
    marker: Path

    @property
    def launcher(self) -> Path:
        return self.build / "launcher" / platform_name()


def build_parts(folder: Path, root: Path) -> dict[str, Path]:
    """Build verifier, launcher and `pure`; returns the files of a release by name."""
    stoilo(
        *("release", "build", "--output", folder, "--root", root),
        *("--origin", ORIGIN, "--serial", "1", "--flavor", "pure"),
    )
    return {
        path.relative_to(folder).as_posix(): path
        for part in ("launcher", "verifier", "flavor")
        for path in (folder / part).rglob("*")
        if path.is_file()
    }


def plant_libraries(chain: Chain, folder: Path) -> Path:
    """Return what starts the launcher among libraries that make a file when loaded."""
    library, launcher = folder / "plant.so", folder / "hostile"
    words = ["-shared", "-fPIC", f'-DMARKER="{chain.marker}"', "-o", library, PLANT]
    subprocess.run(["gcc", *words], check=True)
    script = HOSTILE.format(
        names=" ".join(PLANTED), library=library, launcher=chain.launcher
    )
    launcher.write_text(script)
    launcher.chmod(0o755)
    archive = chain.build / "verifier" / f"{platform_name()}.tar"
    (folder / "stoilo-verifier.tar").symlink_to(archive)
    return launcher


def start_volunteer(
    chain: Chain, folder: Path, number: int, *means: object
) -> subprocess.Popen[bytes]:
    """Start a volunteer of its own account that runs tasks by `means`."""
    line = chain.deployment.line
    assert line is not None
    data = chain.deployment.data
    email = f"v{number}@example.org"
    account = stoilo("boinc", "account", "--data", data, "--email", email, "--json")
    key = folder / f"key{number}"
    key.write_text(json.loads(account)["key"])
    state = folder / f"state{number}"
    chain.states.append(state)
    words = ("--project", line.project, "--key", f"@{key}", "--state", state)
    return subprocess.Popen([*STOILO, "volunteer", *map(str, (*words, *means))])


def sign_for_boinc(keys: Path, build: Path) -> None:
    """Write BOINC's signatures of what was built, by a key of this test's."""
    signer, platform = ProgramSigner(), platform_name()
    for name in (f"launcher/{platform}", f"verifier/{platform}.tar"):
        signature = keys / "boinc" / f"{name}.sig"
        signature.parent.mkdir(parents=True)
        signature.write_text(signer.sign((build / name).read_bytes()).signature)
    (keys / "boinc" / "key.pub").write_text(signer.key.text)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    data = folder / "data"
    data.mkdir(mode=0o700)
    policies = (default_policy().digest,)
    people = ReleasedProject(
        data / "keys", ORIGIN, installed_release(), policies=policies
    )
    people.publish(int(time.time()))
    people.parts = build_parts(folder / "build", data / "keys" / "root.json")
    people.publish(int(time.time()))
    sign_for_boinc(data / "keys", folder / "build")
    with Deployment(data) as deployment:
        assert deployment.line is not None
        with RawClient(Path(deployment.line.connection)) as client:
            root = data / "keys" / "root.json"
            marker = folder / "loaded"
            made = Chain(deployment, client, folder / "build", root, [], marker)
            launchers = (made.launcher, plant_libraries(made, folder))
            volunteers = [
                start_volunteer(made, folder, number, "--launcher", launcher)
                for number, launcher in enumerate(launchers)
            ]
            try:
                yield made
            finally:
                for process in volunteers:
                    process.send_signal(signal.SIGTERM)
                for process in volunteers:
                    process.wait(60)


def test_task_runs_under_the_frozen_programs(chain: Chain) -> None:
    answer = chain.client.wait(chain.client.submit(), seconds=300)
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)


def test_planted_libraries_are_loaded_at_no_stage_of_a_task(chain: Chain) -> None:
    """Launcher, verifier, flavor runtime and jail ran among them on one of the two."""
    answer = chain.client.wait(chain.client.submit(), seconds=120)
    assert answer.state == "succeeded"  # which takes both
    assert not chain.marker.exists()
    folder = chain.states[1] / "projects" / "p"
    assert {path.name for path in folder.iterdir()} >= set(PLANTED)
    searched = {"LD_LIBRARY_PATH": str(folder)}
    control = subprocess.run(
        ["/bin/true"], env=searched, capture_output=True, check=False
    )
    assert control.returncode != 0
    assert str(folder) in control.stderr.decode()


def test_programs_lie_in_the_volunteer_s_own_directory(chain: Chain) -> None:
    for state in chain.states:
        assert len(list((state / "stoilo" / "verifier").glob("?" * 64))) == 1
        flavors = [p for p in (state / "stoilo" / "flavors").iterdir() if p.is_dir()]
        assert len(flavors) == 1
        assert (flavors[0] / "stoilo-runtime").exists()


def test_project_sends_the_programs_that_its_release_names(chain: Chain) -> None:
    """Nothing lies on this volunteer's computer before but the root file."""
    folder = chain.states[0].parent
    means = ("--root", chain.root, "--project-programs")
    process = start_volunteer(chain, folder, 9, *means)
    state = chain.states.pop()
    try:
        deadline = time.monotonic() + 300
        while not list((state / "stoilo" / "flavors").glob("?" * 64)):
            assert time.monotonic() < deadline
            answer = chain.client.wait(chain.client.submit(), seconds=120)
            assert answer.state == "succeeded"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    sent = {path.read_bytes() for path in (state / "project" / "programs").iterdir()}
    assert chain.launcher.read_bytes() in sent


def test_launcher_answers_in_words(chain: Chain, tmp_path: Path) -> None:
    slot = tmp_path / "slots" / "0"
    slot.mkdir(parents=True)
    archive = chain.build / "verifier" / f"{platform_name()}.tar"
    shutil.copy(archive, slot / "stoilo-verifier.tar")
    done = subprocess.run(
        [chain.launcher, "--explain", "--root=evil"],
        cwd=slot,
        capture_output=True,
        text=True,
        check=False,
        env={"LD_LIBRARY_PATH": str(slot), "HOME": os.environ.get("HOME", "/")},
    )
    assert done.returncode == 4
    assert "STO-F038" in done.stderr


def wait_for_proof(chain: Chain) -> Path:
    """Return the directory in which the log's proof of the release lies."""
    proof = chain.root.parent / "release.tlog-proof"
    deadline = time.monotonic() + 300
    while not proof.exists():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return proof.parent


def test_frozen_verifier_finds_itself_in_release_and_log(chain: Chain) -> None:
    slot = chain.states[0] / "slots" / "77"
    slot.mkdir(parents=True)
    archive = chain.build / "verifier" / f"{platform_name()}.tar"
    (slot / "stoilo-verifier.tar").write_text(f"<soft_link>{archive}</soft_link>")
    for name in ("release.record.json", "release.tlog-proof"):
        shutil.copy(wait_for_proof(chain) / name, slot / name)
    words = [chain.launcher, "--self-check"]
    done = subprocess.run(
        words, cwd=slot, capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 0, done.stderr
    assert "launcher is release 1" in done.stdout
    assert "verifier is release 1" in done.stdout
    assert "in the log, entry" in done.stdout


def test_self_check_finds_the_release_in_the_log(chain: Chain) -> None:
    line = chain.deployment.line
    assert line is not None
    wait_for_proof(chain)
    words = ("--project", line.http, "--root", chain.root)
    said = stoilo(
        "volunteer", "self-check", *words, "--launcher", chain.launcher, "--json"
    )
    found = json.loads(said)
    assert [one["part"] for one in found["parts"]] == ["launcher", "verifier"]
    assert found["log"]["size"] >= 1
