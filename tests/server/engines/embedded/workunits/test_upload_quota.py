"""Room for result files: set aside before they come, shared, and given back."""

from __future__ import annotations

import contextlib
import hashlib

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError
from stoilo.policies.levels import level_names, load_level
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.workunits.upload_quota import (
    LARGEST_RESULT,
    Owner,
    UploadLimits,
    UploadRoom,
)
from stoilo.server.engines.embedded.workunits.uploads import UploadDesk, UploadHead
from tests.support.engine import make_spec

ANNA, BEN = Owner(1, 1), Owner(2, 3)
ANNAS_OTHER = Owner(1, 2)
SHARES = {"account_share": 0.5, "host_share": 0.25}
LIMITS = UploadLimits(free_bytes=10, always_bytes=0, **SHARES)
ALONE = UploadLimits(free_bytes=10, account_share=1.0, host_share=1.0)


def hold(room, name, owner, size, *, free, here=0):
    room.reserve(name, owner, size, here, free, 0)


def refused(room, *given, code, **more):
    before = room.taken
    with pytest.raises(InternalError, match=code):
        hold(room, *given, **more)
    assert room.taken == before


# ------------------------------------------------------------------ the rules


def test_what_is_announced_is_not_free_any_more():
    room = UploadRoom(ALONE)
    hold(room, "a", ANNA, 60, free=100)
    refused(room, "b", BEN, 31, free=100, code="STO-R030")
    hold(room, "b", BEN, 30, free=100)


def test_what_has_come_is_counted_by_the_disk_and_not_twice():
    room = UploadRoom(ALONE)
    hold(room, "a", ANNA, 60, free=100)
    room.note("a", 60, 0, 1)
    hold(room, "b", BEN, 30, free=40)


def test_upload_that_ended_gives_its_room_back():
    room = UploadRoom(ALONE)
    hold(room, "a", ANNA, 90, free=100)
    room.release("a")
    hold(room, "b", BEN, 90, free=100)


@pytest.mark.parametrize(("owner", "most"), [(ANNA, 25), (ANNAS_OTHER, 25), (BEN, 25)])
def test_host_has_a_quarter(owner, most):
    refused(UploadRoom(LIMITS), "a", owner, most + 1, free=110, code="STO-E110")
    hold(UploadRoom(LIMITS), "a", owner, most, free=110)


def test_account_has_half_whatever_its_number_of_hosts():
    room = UploadRoom(LIMITS)
    hold(room, "a", ANNA, 25, free=110)
    hold(room, "b", ANNAS_OTHER, 25, free=110)
    refused(room, "c", Owner(1, 9), 1, free=110, code="STO-E110")
    hold(room, "c", BEN, 25, free=110)


def test_all_together_have_no_more_than_the_operator_says():
    room = UploadRoom(UploadLimits(most_bytes=100, always_bytes=100))
    hold(room, "a", ANNA, 60, free=10**9)
    refused(room, "b", BEN, 41, free=10**9, code="STO-E110")
    hold(room, "b", BEN, 40, free=10**9)


def test_small_share_never_keeps_a_lone_result_out():
    room = UploadRoom(UploadLimits(free_bytes=10, always_bytes=50))
    hold(room, "a", ANNA, 50, free=110)
    refused(room, "b", ANNA, 1, free=110, code="STO-E110")


def test_part_is_stale_when_nothing_came_for_long_and_a_file_never():
    room = UploadRoom(UploadLimits(stale_s=10))
    for name, whole in (("old", False), ("whole", True), ("young", False)):
        room.load(name, ANNA, 5, 20 if name == "young" else 0, whole=whole)
    assert room.stale(11) == ("old",)


NEW = UploadLimits(free_bytes=10, always_bytes=20)


def strangers(count):
    return [Owner(100 + number, 100 + number, newcomer=True) for number in range(count)]


def test_newcomer_has_what_everybody_always_has_and_no_share():
    (new,) = strangers(1)
    refused(UploadRoom(NEW), "a", new, 21, free=1010, code="STO-E110")
    hold(UploadRoom(NEW), "a", new, 20, free=1010)
    hold(UploadRoom(NEW), "a", ANNA, 100, free=1010)


def test_newcomer_sends_one_file_larger_than_what_everybody_has():
    room = UploadRoom(UploadLimits(free_bytes=0, always_bytes=20, one_bytes=100))
    newcomer = Owner(7, 7, newcomer=True)
    room.reserve("large", newcomer, 100, 0, 1 << 40, 0)
    with pytest.raises(InternalError, match="STO-E110"):
        room.reserve("small", newcomer, 1, 0, 1 << 40, 0)
    with pytest.raises(InternalError, match="STO-E110"):
        room.reserve("larger", Owner(8, 8, newcomer=True), 101, 0, 1 << 40, 0)


def test_no_level_lets_a_task_return_more_than_a_newcomer_may_send():
    largest = max(load_level(name).max_limits().result_bytes for name in level_names())
    assert largest < LARGEST_RESULT


def test_newcomers_leave_room_however_many_they_are():
    room = UploadRoom(NEW)
    *many, one_more = strangers(13)
    for number, new in enumerate(many):
        hold(room, f"{number}", new, 20, free=1010)
    refused(room, "more", one_more, 20, free=1010, code="STO-E110")
    hold(room, "a", ANNA, 100, free=1010)


def test_accounts_in_one_hand_do_not_get_it_all():
    room = UploadRoom(UploadLimits(free_bytes=10, always_bytes=0))
    for user in (1, 2):
        for host in (1, 2):
            hold(room, f"{user} {host}", Owner(user, 10 * user + host), 100, free=1010)
        refused(room, "x", Owner(user, 99), 1, free=1010, code="STO-E110")
    hold(room, "b", Owner(3, 3), 100, free=1010)


STEPS = st.tuples(
    st.sampled_from(["reserve", "note", "load", "release"]),
    st.sampled_from("abcd"),
    st.sampled_from([ANNA, ANNAS_OTHER, BEN, Owner(4, 4, newcomer=True)]),
    st.integers(0, 60),
    st.integers(0, 60),
)


@given(st.lists(STEPS, max_size=30))
def test_sums_are_those_of_what_is_held_and_no_share_is_exceeded(steps):
    room = UploadRoom(UploadLimits(most_bytes=100, always_bytes=0, **SHARES))
    for what, name, owner, here, more in steps:
        match what:
            case "reserve":
                with contextlib.suppress(InternalError):
                    room.reserve(name, owner, here + more, here, 10**9, 0)
                    assert room._of_account[owner.user_id] <= 50
                    assert room._of_host[owner.host_id] <= 25
            case "note":
                room.note(name, here, more, 0)
            case "load":
                room.load(name, owner, here, 0, whole=True)
            case "release":
                room.release(name)
        assert room.taken == sum(held.size for held in room._held.values())
    for name in "abcd":
        room.release(name)
    assert not any((room.taken, *room._of_account.values(), *room._of_host.values()))
    assert room._of_newcomers == 0


# ------------------------------------------------------------------ the desk


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    limits = UploadLimits(most_bytes=1000, always_bytes=0, **SHARES)
    options = EngineOptions(uploads=limits, lots=lambda: 0.5)
    made = EmbeddedBench(tmp_path / "engine", clock, options, engine_url)
    specs = [make_spec(f"w_{number}", result_max_bytes=900) for number in range(4)]
    made.engine.create_workunits(specs)
    yield made
    made.engine.close()


def begin(bench, copy, size, part=b""):
    """Enter an upload of `size` bytes, of which `part` comes; return how to leave."""
    upload = bench.uploads[copy]
    md5 = hashlib.md5(part, usedforsecurity=False).hexdigest()
    head = UploadHead(upload.name, size, md5, 0)
    stack = contextlib.ExitStack()
    token = upload.url.rpartition("/")[2]
    incoming = stack.enter_context(bench.engine.uploads.receive(token, head))
    incoming.write(part)
    return stack


@contextlib.contextmanager
def coming(bench, copy, size):
    """While an upload of `size` bytes is on its way; nothing of it ever comes."""
    with contextlib.suppress(InternalError), begin(bench, copy, size):
        yield


def parts(bench):
    return sorted(path.name for path in (bench.directory / "uploads").iterdir())


def leave_part(bench, copy, size, part):
    with pytest.raises(InternalError, match="STO-E034"):
        begin(bench, copy, size, part).close()


def test_upload_on_its_way_takes_its_accounts_share(bench):
    first, second, third, _ = bench.fetch(1)
    with coming(bench, first, 200):
        with pytest.raises(InternalError, match="STO-E110"):
            bench.upload(second, bytes(51))
        bench.upload(second, bytes(50))
    bench.upload(third, bytes(200))


def test_results_that_are_gone_give_their_room_back(bench):
    for user in (1, 2):
        copies = bench.fetch(user)
        bench.finish(user, copies[0], bytes(250))
        with pytest.raises(InternalError, match="STO-E110"):
            bench.upload(copies[1], bytes(1))
    bench.settle()
    bench.upload(copies[1], bytes(250))


def test_neighbour_still_has_room(bench):
    bench.upload(bench.fetch(1)[0], bytes(250))
    bench.upload(bench.fetch(2)[1], bytes(250))


def test_what_lies_there_after_a_restart_is_counted(bench):
    first, second, third, _ = bench.fetch(1)
    bench.upload(first, bytes(150))
    leave_part(bench, second, 100, bytes(60))
    bench.restart()
    with pytest.raises(InternalError, match="STO-E110"):
        bench.upload(third, bytes(41))
    bench.upload(third, bytes(40))


def test_part_that_stopped_coming_is_removed_after_hours(bench):
    first, second, _, _ = bench.fetch(1)
    bench.upload(second, bytes(50))
    leave_part(bench, first, 200, b"half")
    bench.settle()
    assert len(parts(bench)) == 2
    bench.pass_time(6 * 3600 + 1)
    bench.engine.uploads.expire()
    assert parts(bench) == [bench.uploads[second].name]
    assert bench.engine.uploads._room.taken == 50


def test_uploads_at_the_same_time_cannot_fill_the_disk_together(bench, tmp_path, clock):
    desk = UploadDesk(
        bench.engine._database,
        tmp_path / "small",
        limits=ALONE,
        clock=clock,
        free=lambda _: 110,
    )
    bench.engine.uploads = desk
    first, second, *_ = bench.fetch(1)
    with coming(bench, first, 60):
        with pytest.raises(InternalError, match="STO-R030"):
            bench.upload(second, bytes(41))
        bench.upload(second, bytes(40))


def test_result_of_a_copy_that_is_reported_as_failed_goes_at_once(bench):
    first, second, _, _ = bench.fetch(1)
    bench.upload(first, bytes(100))
    leave_part(bench, second, 100, bytes(60))
    for copy in (first, second):
        bench.fail(1, copy)
    bench.settle()
    assert parts(bench) == []
    assert bench.engine.uploads._room.taken == 0


def test_result_of_a_copy_that_is_not_reported_yet_stays(bench):
    first, second, _, _ = bench.fetch(1)
    bench.upload(first, bytes(100))
    bench.fail(1, second)
    bench.settle()
    assert parts(bench) == [bench.uploads[first].name]


def test_newcomer_that_has_no_room_is_told_and_others_have_it(bench):
    bench.make_unverified(1)
    with pytest.raises(InternalError, match="STO-E110"):
        bench.upload(bench.fetch(1)[0], bytes(1))
    bench.upload(bench.fetch(2)[0], bytes(250))


def test_newcomers_results_are_counted_as_such_after_a_restart(bench):
    limits = UploadLimits(most_bytes=1000, always_bytes=200, **SHARES)
    bench.options = EngineOptions(uploads=limits)
    bench.restart()
    bench.make_unverified(1)
    bench.upload(bench.fetch(1)[0], bytes(100))
    bench.restart()
    assert bench.engine.uploads._room._of_newcomers == 100


def test_upload_of_which_nothing_came_leaves_no_file(bench):
    leave_part(bench, bench.fetch(1)[0], 100, b"")
    assert parts(bench) == []


def test_empty_result_goes_with_its_workunit(bench):
    for user in (1, 2):
        bench.finish(user, bench.fetch(user)[0], b"")
    assert len(parts(bench)) == 2
    bench.settle()
    for name in bench.outcomes.outcomes:
        assert not [part for part in parts(bench) if part.startswith(f"{name}_")]
