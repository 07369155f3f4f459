"""A mirror keeps up with its project: whole files only, no more than there is room."""

from __future__ import annotations

import hashlib
import time

import pytest

from stoilo.core.errors import DeniedError, TrustError, UnreachableError
from stoilo.server.mirror.listing import INDEX, Listed, render_listing
from stoilo.server.mirror.pull import CHUNK, Origin, sync
from stoilo.server.mirror.serving import Keeper
from stoilo.server.mirror.shelf import Shelf
from tests.support.scripted import Scripted, ScriptedProject

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


DRIPPING = Scripted(DATA, drip_s=0.02)  # no single read waits for long


def test_project_that_drips_its_list_is_given_up(project):
    project.answer("/mirror/list", DRIPPING)
    begun = time.monotonic()
    with (
        Origin(project.url, "key", answer_s=0.3) as origin,
        pytest.raises(UnreachableError, match="STO-B056"),
    ):
        origin.listing()
    assert time.monotonic() - begun < 60  # the whole takes half an hour


def test_file_that_hardly_moves_is_left_for_the_next_round(project, shelf):
    project.answer(f"/mirror/file/{DIGEST}", DRIPPING)
    with Origin(project.url, "key", answer_s=0.3, slowest=10**9) as origin:
        assert sync(origin, shelf, ROOM).failed == 1
    assert shelf.held() == {}


def test_stop_ends_a_fetch_and_keeps_what_came(project, shelf):
    large = Listed("a" * 64, 3 * CHUNK)
    project.answer("/mirror/list", Scripted(render_listing([large, FILE])))
    project.answer(f"/mirror/file/{large.digest}", Scripted(bytes(large.size)))
    stops = iter([False, False, True, True])
    with Origin(project.url, "key") as origin:
        assert sync(origin, shelf, ROOM, lambda: next(stops)).fetched == 0
    assert shelf.held() == {}
    assert shelf.part_of(large.digest).stat().st_size == 2 * CHUNK
    assert all(DIGEST not in one.path for one in project.asked)


def test_keeper_stops_soon_though_a_file_is_on_its_way(project, shelf):
    path = f"/mirror/file/{DIGEST}"
    project.answer(path, DRIPPING)
    with Origin(project.url, "key") as origin:
        keeper = Keeper(origin, shelf, ROOM, 60.0, lambda _: None, stop_s=0.2)
        keeper.start()
        until = time.monotonic() + 30
        while not any(one.path == path for one in project.asked):
            assert time.monotonic() < until
            time.sleep(0.01)
        begun = time.monotonic()
        keeper.stop()
        assert time.monotonic() - begun < 60
