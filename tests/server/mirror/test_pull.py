"""A mirror keeps up with its project: whole files only, no more than there is room."""

from __future__ import annotations

import hashlib

import pytest

from stoilo.core.errors import DeniedError, TrustError, UnreachableError
from stoilo.server.mirror.listing import INDEX, Listed, render_listing
from stoilo.server.mirror.pull import Origin, sync
from stoilo.server.mirror.shelf import Shelf
from stoilo.testing.scripted import Scripted, ScriptedProject

DATA = bytes(range(256)) * 400
DIGEST = hashlib.sha256(DATA).hexdigest()
FILE = Listed(DIGEST, len(DATA))
ROOM = 10**9


@pytest.fixture
def project():
    with ScriptedProject() as made:
        made.answer("/mirror/list", Scripted(render_listing([FILE])))
        yield made


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "mirror")


def pull(project, shelf, most=ROOM):
    with Origin(project.url, "key", timeout_s=60) as origin:
        return sync(origin, shelf, most)


def index(tmp_path):
    return (tmp_path / "mirror" / INDEX).read_text().split()


def test_new_file_is_fetched_and_listed(project, shelf, tmp_path):
    project.answer(f"/mirror/file/{DIGEST}", Scripted(DATA))
    assert pull(project, shelf).fetched == 1
    assert (tmp_path / "mirror" / DIGEST).read_bytes() == DATA
    assert index(tmp_path) == [DIGEST]


@pytest.mark.parametrize("body", [b"x" * len(DATA), DATA + b"more"])
def test_wrong_bytes_are_not_published(project, shelf, tmp_path, body):
    project.answer(f"/mirror/file/{DIGEST}", Scripted(body))
    assert pull(project, shelf).failed == 1
    assert (shelf.held(), index(tmp_path)) == ({}, [])
    assert not shelf.part_of(DIGEST).exists()


def test_fetch_that_was_cut_goes_on_where_it_stopped(project, shelf):
    headers = {"content-range": f"bytes 1000-{len(DATA) - 1}/{len(DATA)}"}
    rest = Scripted(DATA[1000:], 206, headers)
    path = f"/mirror/file/{DIGEST}"
    project.answer(path, Scripted(DATA, cut_after=1000), rest)
    assert pull(project, shelf).failed == 1
    assert shelf.held() == {}
    assert pull(project, shelf).fetched == 1
    assert [one.range for one in project.asked if one.path == path] == [
        "",
        "bytes=1000-",
    ]


def test_what_the_project_dropped_goes(project, shelf, tmp_path):
    project.answer(f"/mirror/file/{DIGEST}", Scripted(DATA))
    pull(project, shelf)
    project.answer("/mirror/list", Scripted(b""))
    assert pull(project, shelf).evicted == 1
    assert (shelf.held(), index(tmp_path)) == ({}, [])


def test_file_without_room_is_left_out(project, shelf):
    assert pull(project, shelf, most=len(DATA) - 1).left_out == 1
    assert all(DIGEST not in one.path for one in project.asked)


def test_part_of_a_file_that_was_dropped_goes_too(project, shelf):
    project.answer(f"/mirror/file/{DIGEST}", Scripted(DATA, cut_after=1000))
    pull(project, shelf)
    assert shelf.part_of(DIGEST).exists()
    project.answer("/mirror/list", Scripted(b""))
    pull(project, shelf)
    assert not shelf.part_of(DIGEST).exists()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Scripted(status=404), DeniedError),
        (Scripted(status=503), UnreachableError),
        (Scripted(b"no list"), TrustError),
    ],
)
def test_project_in_trouble_costs_a_mirror_nothing(project, shelf, answer, error):
    project.answer(f"/mirror/file/{DIGEST}", Scripted(DATA))
    pull(project, shelf)
    project.answer("/mirror/list", answer)
    with pytest.raises(error):
        pull(project, shelf)
    assert shelf.held() == {DIGEST: len(DATA)}
