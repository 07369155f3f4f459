"""The played tools fail as BOINC's do: with 0 and a word."""

from __future__ import annotations

import subprocess

import pytest

from stoilo.core.errors import InternalError
from stoilo.server.engines.stock.installation.install import install_project
from tests.support.programs import ProgramSigner
from tests.support.stocktools.processes import DaemonProcesses
from tests.support.stocktools.project import make_fake_project


@pytest.fixture
def fake(tmp_path):
    return make_fake_project(tmp_path / "project", apps=())


def install(fake, signer):
    offer = signer.offer()
    return install_project(fake.root, offer, url=fake.database_url)


def status(fake):
    return subprocess.run(
        [fake.root / "bin" / "status"], capture_output=True, text=True, check=True
    ).stdout


def test_second_installation_of_a_played_project_has_nothing_to_do(fake):
    signer = ProgramSigner()
    assert install(fake, signer).steps
    assert install(fake, signer).steps == ()


@pytest.mark.parametrize(
    ("broken", "said"),
    [("{}.sig", "no .sig file"), ("{}", "listed in version.xml but not present")],
)
def test_version_that_update_versions_does_not_take_is_our_error(fake, broken, said):
    tool = fake.root / "bin" / "update_versions"
    good = tool.rename(tool.with_name("aside"))
    lost = broken.format("apps/pure/*/*/stoilo_launcher_????????????????")
    tool.write_text(f'#!/bin/sh\nrm {lost}\nexec {good} "$@"\n')
    tool.chmod(0o755)
    with pytest.raises(InternalError, match=said):
        install(fake, ProgramSigner())


def test_status_shows_who_runs(fake):
    with DaemonProcesses.running(fake.root) as processes:
        processes.kill("feeder.pid")
        feeder, transitioner = status(fake).splitlines()[3:]
        assert "NOT RUNNING" in feeder
        assert "NOT RUNNING" not in transitioner
    assert "BOINC is ENABLED" in status(fake)
