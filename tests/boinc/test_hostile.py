"""Hostile servers and tasks against a real client's host."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import InternalError
from tests.support.boinc import BoincClient
from tests.support.boincproject import BoincProject
from tests.support.boincscenes import Scenes
from tests.support.jailwatch import jailed
from tests.support.meddler import Meddler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PLANT = Path(__file__).parents[1] / "executor" / "launcher" / "programs" / "plant.c"
PLANTED = ("libc.so.6", "libz.so.1", "libpython3.11.so.1.0", "libseccomp.so.2")
LONG = {"rounds": 60_000_000}
ENDLESS = {"rounds": 10**12}
NUMERIC = b"""
import numpy as np

def task(kwargs):
    return float(np.arange(kwargs["rounds"]).sum())
"""
PREFERENCES = re.compile(
    rb"<project_preferences>.*?</project_preferences>\n?", re.DOTALL
)
WIDE = (
    b"<project_preferences><project_specific><max_level>tensor</max_level>"
    b"</project_specific></project_preferences>\n"
)
SEARCHING = b"""
import math
import random

def task(kwargs):
    found = []
    for place in (math, random, task, kwargs, found, int):
        for name in kwargs["names"]:
            try:
                found.append(str(getattr(place, name)))
            except Exception as error:
                found.append(str(error))
    for form in kwargs["forms"]:
        try:
            found.append(form.format(math, task))
        except Exception as error:
            found.append(str(error))
    return found
"""
NAMES = ["__loader__", "__globals__", "__builtins__", "_os", "open", "__class__"]
FORMS = ["{0.__loader__}", "{1.__globals__}", "{0.__dict__}"]
OPENING = b"def task(kwargs):\n    return open('init_data.xml').read()\n"
IMPORTING = b"import os\n\ndef task(kwargs):\n    return os.listdir('.')\n"


class Planter:
    """Sends libraries with every task, as real files of slot and project directory."""

    def __init__(self, library: bytes) -> None:
        self.files = {f"/planted/{name}": library for name in PLANTED}
        self.project = ""

    def __call__(self, reply: bytes) -> bytes:
        """Return the scheduler's reply with them."""
        infos = "".join(
            f"<file_info><name>{name}</name><url>{self.project}planted/{name}</url>"
            f"</file_info>\n"
            for name in PLANTED
        )
        refs = "".join(
            f"<file_ref><file_name>{name}</file_name><open_name>{name}</open_name>"
            f"<copy_file/></file_ref>\n"
            for name in PLANTED
        )
        reply = reply.replace(b"</workunit>", refs.encode() + b"</workunit>")
        return reply.replace(b"<workunit>", infos.encode() + b"<workunit>", 1)


def raise_preferences(reply: bytes) -> bytes:
    reply = PREFERENCES.sub(b"", reply)
    return reply.replace(b"</scheduler_reply>", WIDE + b"</scheduler_reply>")


def compile_library(folder: Path, marker: Path) -> bytes:
    library = folder / "plant.so"
    words = ["-shared", "-fPIC", f'-DMARKER="{marker}"', "-o", library, PLANT]
    subprocess.run(["gcc", *words], check=True)
    return library.read_bytes()


def plant_libraries(project: BoincProject) -> None:
    client = project.client(cpus=1)
    marker = client.directory / "loaded"
    planter = Planter(compile_library(project.folder, marker))
    with Meddler(str(project.line.project), planter, files=planter.files) as meddler:
        planter.project = client.project = meddler.project
        task = project.submit(arguments=LONG)
        with client:
            client.wait_for(lambda: next(jailed(client), None))
            for place in (client.directory / "slots" / "0", client.project_folder):
                for name in PLANTED:
                    assert (place / name).read_bytes()[:4] == b"\x7fELF"
                control = subprocess.run(
                    ["/bin/true"],
                    env={"LD_LIBRARY_PATH": str(place)},
                    capture_output=True,
                    check=False,
                )
                assert str(place) in control.stderr.decode()
            project.wait(task, client)
            assert not marker.exists()


def raise_level(project: BoincProject) -> None:
    with ExitStack() as stack:
        meddler = stack.enter_context(
            Meddler(str(project.line.project), raise_preferences)
        )
        client = project.client(level="numeric", project=meddler.project)
        with client:
            task = project.submit(NUMERIC, {"rounds": 10})
            client.wait_for_message(f"Computation for task {task}.* finished")
            account = next(client.directory.glob("account_*.xml")).read_text()
            assert "<max_level>tensor</max_level>" in account
            client.wait_for(
                lambda: project.researcher.poll(task).copies[0].outcome == "refused"
            )
            assert not list((client.home / "flavors").glob("?" * 64))
    project.researcher.cancel(task)


@pytest.mark.parametrize("source", [OPENING, IMPORTING])
def test_task_that_opens_files_is_not_taken(
    project: BoincProject, source: bytes
) -> None:
    with pytest.raises(InternalError, match="STO-"):
        project.submit(source)


def views(pid: int) -> list[str]:
    """Return what the kernel shows of a process; empty when it has just ended.

    Everything that it has open, what its environment and its mounts say, and the names
    in its root and working directory.
    """
    place = Path(f"/proc/{pid}")
    with suppress(OSError):
        opened = [str(path.readlink()) for path in (place / "fd").iterdir()]
        texts = [
            (place / name).read_bytes().decode(errors="replace")
            for name in ("environ", "mountinfo")
        ]
        folders = (place / "root", place / "cwd")
        names = [str(path) for folder in folders for path in folder.iterdir()]
        return [*opened, *texts, *names]
    return []


def jailed_views(client: BoincClient) -> list[str]:
    """Return the views of a jailed process of the client."""
    found = (views(pid) for pid, _ in jailed(client))
    return next(filter(None, found), [])


def search_the_slot(project: BoincProject) -> None:
    with project.client(cpus=1) as client:
        spin = project.submit(arguments=ENDLESS)
        held = "\n".join(client.wait_for(lambda: jailed_views(client)))
        around = [one for pid in client.family() for one in views(pid)]
        assert any("init_data.xml" in one for one in around)  # the verifier sees it
        # PyInstaller's variables say where the runtime lies; tasks have no way to them
        held = held.replace(str(client.home / "flavors"), "")
        secrets = (client.key, str(client.directory), "init_data", "slots")
        assert not [secret for secret in secrets if secret in held]
        project.researcher.cancel(spin)
        client.tell_project("update")
        client.wait_for(lambda: not client.family())
        task = project.submit(SEARCHING, {"names": NAMES, "forms": FORMS})
        answer = project.wait(task, client)
        said = "\n".join(decode(answer.value))
        assert not [secret for secret in secrets if secret in said]


SCENES = (plant_libraries, raise_level, search_the_slot)


@pytest.fixture(scope="module")
def scenes(frozen_numeric: Path) -> Iterator[Scenes]:
    with Scenes(frozen_numeric, SCENES) as made:
        yield made


def test_libraries_planted_by_the_server_are_loaded_at_no_stage(scenes: Scenes) -> None:
    scenes.check(plant_libraries)


def test_server_that_raises_preferences_changes_nothing_on_the_host(
    scenes: Scenes,
) -> None:
    scenes.check(raise_level)


def test_task_that_searches_its_slot_finds_nothing(scenes: Scenes) -> None:
    scenes.check(search_the_slot)
