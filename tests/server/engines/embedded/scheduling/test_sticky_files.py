from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.boinc.messages import HostInfo
from stoilo.core.digests import content_digest
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db.schema import INLINE_BYTES
from stoilo.server.engines.embedded.scheduling.sticky_files import (
    KEEP_S,
    LOST_AFTER_S,
    NAMES_READ,
)
from stoilo.server.engines.embedded.web.requests import parse_request
from stoilo.server.engines.workunits import WorkunitFile
from tests.support.engine import make_spec

MODEL = b"model"
NAME = content_digest(MODEL)
ONCE = Redundancy(min_quorum=1, target_results=1, max_error=1, max_total=3)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def give(bench, name="w_1", user=1, data=MODEL, **fields):
    file = WorkunitFile("blob_000", content_digest(data), data, sticky=True)
    spec = make_spec(name, files=(file,), redundancy=ONCE)
    bench.engine.create_workunits([spec])
    return bench.request(user, cpu_req_instances=1.0, **fields)


def end(bench, copy="w_1_0", user=1):
    """Let the copy come back and the workunit end: nobody names its files then."""
    bench.finish(user, copy, b"answer")
    bench.settle()


def ask(bench, *names, user=1, **fields):
    return bench.request(user, sticky_files=names, dont_send_work=True, **fields)


def test_sticky_file_goes_out_under_its_digest(bench):
    (file,) = give(bench).files
    assert (file.name, file.sticky) == (NAME, True)


@pytest.mark.parametrize(
    ("fields", "sizes", "came"),
    [
        ({}, (5, 9), ()),  # not asked for
        ({"takes_content": True}, (5, 9), (5, 9)),
        ({"takes_content": True}, (5, INLINE_BYTES + 1), (5,)),  # not in the database
        ({"takes_content": True}, (INLINE_BYTES,) * 9, (INLINE_BYTES,) * 8),  # no room
    ],
)
def test_small_files_of_one_task_come_with_the_reply(bench, fields, sizes, came):
    every = [bytes([number]) * size for number, size in enumerate(sizes)]
    files = [WorkunitFile(f"f{d[0]}", content_digest(d), d) for d in every]
    kept = WorkunitFile("blob_000", NAME, MODEL, sticky=True)
    spec = make_spec("w_1", files=(*files, kept), redundancy=ONCE)
    bench.engine.create_workunits([spec])
    found = bench.request(1, cpu_req_instances=1.0, **fields).files
    contents = [info.content for info in found if info.content]
    assert sorted(map(len, contents)) == sorted(came)
    assert {content_digest(c) for c in contents} <= {f.digest for f in files}


def test_needed_file_is_kept(bench):
    give(bench)
    bench.pass_time(KEEP_S)
    assert ask(bench, NAME).delete_files == ()


def test_file_is_kept_for_a_while_after_its_workunit(bench):
    give(bench)
    end(bench)
    assert ask(bench, NAME).delete_files == ()


def test_file_is_deleted_when_nobody_needs_it_any_more(bench):
    give(bench)
    end(bench)
    bench.pass_time(KEEP_S)
    assert ask(bench, NAME).delete_files == (NAME,)


def test_host_is_told_again_until_it_has_deleted_the_file(bench):
    give(bench)
    ask(bench, NAME)
    end(bench)
    bench.pass_time(KEEP_S)
    assert ask(bench, NAME).delete_files == ask(bench, NAME).delete_files == (NAME,)
    assert ask(bench).delete_files == ()


def test_deleted_name_may_come_again(bench):
    give(bench)
    ask(bench, NAME)
    end(bench)
    bench.pass_time(KEEP_S)
    assert ask(bench, NAME).delete_files == (NAME,)
    reply = give(bench, "w_2", sticky_files=(NAME,))
    assert [file.name for file in reply.files] == [NAME]
    assert reply.delete_files == ()
    assert ask(bench, NAME).delete_files == ()


def test_lease_is_prolonged_by_every_use(bench):
    give(bench)
    end(bench)
    bench.pass_time(KEEP_S - 1)
    give(bench, "w_2")
    end(bench, "w_2_0")
    bench.pass_time(KEEP_S - 1)
    assert ask(bench, NAME).delete_files == ()


def test_unknown_file_is_answered_like_one_that_others_have(bench):
    give(bench)  # user 1 has it and needs it; user 2 was never sent it
    stranger = content_digest(b"never seen here")
    assert ask(bench, NAME, stranger, user=2).delete_files == tuple(
        sorted((NAME, stranger))
    )


def test_programs_are_never_deleted(bench):
    names = ("stoilo_launcher_0123456789abcdef", "stoilo_verifier_0123456789abcdef.tar")
    assert ask(bench, *names).delete_files == ()


def test_full_disk_gives_back_the_longest_unused_first(bench):
    large = b"shard" * 200_000
    give(bench, data=large)
    end(bench)
    bench.pass_time(1)
    give(bench, "w_2")
    end(bench, "w_2_0")
    small = HostInfo(disk_free_bytes=100_000.0)
    held = (content_digest(large), NAME)
    assert ask(bench, *held, host=small).delete_files == (content_digest(large),)


def test_full_disk_leaves_what_a_running_copy_needs(bench):
    give(bench)
    assert ask(bench, NAME, host=HostInfo(disk_free_bytes=1.0)).delete_files == ()


def test_host_that_asks_for_nothing_costs_no_row(bench):
    assert ask(bench).delete_files == ()


def test_only_a_bounded_number_of_names_is_read(bench):
    many = tuple(f"{number:064x}" for number in range(NAMES_READ + 5))
    assert len(ask(bench, *many).delete_files) == NAMES_READ


def test_host_that_comes_back_after_its_leases_were_forgotten_deletes(bench):
    give(bench)
    end(bench)
    bench.pass_time(KEEP_S + LOST_AFTER_S + 1)
    bench.restart()
    assert ask(bench, NAME).delete_files == (NAME,)


def test_restart_forgets_no_lease(bench):
    give(bench)
    ask(bench, NAME)
    bench.restart()
    assert ask(bench, NAME).delete_files == ()


def test_file_on_its_way_does_not_count_as_kept():
    data = (
        b"<scheduler_request><authenticator>k</authenticator><host_info>"
        b"<host_cpid>c</host_cpid></host_info>"
        b"<file_info><name>here</name><status>1</status></file_info>"
        b"<file_info><name>coming</name><status>0</status></file_info>"
        b"<file_info><name>failed</name><status>-224</status></file_info>"
        b"</scheduler_request>"
    )
    assert parse_request(data).sticky_files == ("here",)
