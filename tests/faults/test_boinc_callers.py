"""Callers of a project's BOINC side who lie about who they are and what they sent before.

Each lie has its honest counterpart, which is taken; and an honest volunteer who works all
the time never notices. What the wire's parsers do with single texts is in
`test_bad_project_input`.
"""

from __future__ import annotations

import gzip
import threading

import pytest

from tests.support.attackers import names_of
from tests.support.wire import BoincPeer, HttpAnswer
from tests.support.workingproject import WorkingProject

pytestmark = pytest.mark.usefixtures("others_go_on")
MIB = 1024 * 1024


@pytest.mark.parametrize("key", ["", "0" * 32, "' or 1=1 --", "k" * 255])
def test_wrong_key_is_told_as_boinc_does_and_leaves_nothing(
    world: WorkingProject, key: str
):
    peer, before = world.peer(), world.rows("engine_host")
    lines = world.refusals("STO-E016")
    answer = peer.schedule(key=key, instances=8)
    assert answer.field("request_delay") == "3600.000"
    assert b'<message priority="notice">' in answer.body
    assert not answer.field("hostid")
    assert not names_of(answer)
    assert world.rows("engine_host") == before
    assert world.refusals("STO-E016") > lines or "more before" in world.log()
    assert names_of(peer.schedule(instances=1))  # the right one


def test_flood_of_wrong_keys_neither_stops_others_nor_fills_the_log(
    world: WorkingProject,
):
    def flood() -> None:
        peer = BoincPeer(world.project.url, "1" * 32)
        for _ in range(60):
            assert peer.schedule(instances=1).status == 200

    before = world.rows("engine_host")
    threads = [threading.Thread(target=flood) for _ in range(5)]
    for thread in threads:
        thread.start()
    world.goes_on()
    for thread in threads:
        thread.join()
    assert world.rows("engine_host") == before
    assert len(world.log()) < MIB


def test_host_id_of_somebody_else_opens_nothing(world: WorkingProject):
    victim, thief = world.peer(), world.peer()
    copy = world.take(victim)
    (host,) = world.query("select host_id from engine_result where name=?", copy.name)[
        0
    ]
    answer = thief.schedule(host_id=host)
    assert answer.field("hostid") not in {"", str(host)}
    assert copy.name not in names_of(answer)
    assert names_of(victim.schedule(host_id=host)) == [copy.name]  # lost, sent again


def test_cloned_state_becomes_another_host_and_gets_nothing_of_the_first(
    world: WorkingProject,
):
    peer = world.peer()
    mine = int(peer.schedule().field("hostid"))
    old = peer.request(host_id=mine)
    copy = world.take(peer, host_id=mine)
    answer = peer.send("POST", "/sched", old)  # the copied disk wakes up
    assert answer.field("hostid") not in {"", str(mine)}
    assert copy.name not in names_of(answer)
    assert names_of(peer.schedule(host_id=mine)) == [copy.name]  # the first goes on


def test_report_by_another_host_of_the_same_account_changes_nothing(
    world: WorkingProject,
):
    peer = world.peer()
    other = BoincPeer(world.project.url, peer.key)
    copy = world.take(peer)
    for state, status in ((5, 0), (3, 1), (6, 200)):
        answer = other.report(copy.name, state=state, exit_status=status)
        assert f"<result_ack><name>{copy.name}<".encode() in answer.body
    assert world.state(copy.name)[0] == "in_progress"
    peer.report(copy.name, state=3, exit_status=1)
    assert world.state(copy.name)[0] == "over"


# ------------------------------------------------------------------ what is sent again


def test_request_played_again_gets_the_same_copy_and_no_other(world: WorkingProject):
    peer = world.peer()
    request = peer.request(instances=1)
    first = names_of(peer.send("POST", "/sched", request))
    hosts = world.rows("engine_host")
    held = set(first)
    for _ in range(5):
        held |= set(names_of(peer.send("POST", "/sched", request)))
    assert first[0] in held
    assert world.rows("engine_host") == hosts
    (count,) = world.query(
        "select count(*) from engine_result where host_id = "
        "(select host_id from engine_result where name = ?)",
        first[0],
    )[0]
    assert count == len(held)  # everything that it was given, it was told


def test_report_and_upload_played_again_change_nothing(world: WorkingProject):
    peer = world.peer()
    copy = world.take(peer)
    assert peer.upload(copy.path, copy.upload, b"answer").field("status") == "0"
    assert world.state(copy.name)[0] == "in_progress"
    for _ in range(3):
        assert peer.report(copy.name).status == 200
    world.wait(lambda: copy.name.rpartition("_")[0] in world.project.outcomes())
    before = world.state(copy.name)
    for data in (b"answer", b"better"):
        again = peer.upload(copy.path, copy.upload, data)
        assert again.field("status") == "-1"
        assert "STO-E014" in again.field("message")
    assert peer.report(copy.name, state=3, exit_status=1).status == 200
    assert world.state(copy.name) == before


# ------------------------------------------------------------------ forged headers


def test_forwarded_address_does_not_buy_more_account_calls(world: WorkingProject):
    peer = world.peer()
    query = "/lookup_account.php?email_addr=a%40b.org&passwd_hash=" + "0" * 32

    def call(number: int) -> HttpAnswer:
        address = f"192.0.2.{number}"
        headers = {"X-Forwarded-For": address, "Forwarded": f"for={address}"}
        return peer.send("GET", query, headers=headers)

    assert call(0).field("error_num") == "-206"  # taken, and no such account
    answers = [call(number) for number in range(1, 80)]
    refused = [answer for answer in answers if answer.field("error_num") == "-183"]
    assert refused
    assert "STO-E068" in refused[0].field("error_msg")


def test_forged_host_header_changes_no_address_in_the_reply(world: WorkingProject):
    peer = world.peer()
    headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    answer = peer.send("POST", "/sched", peer.request(instances=1), headers)
    assert names_of(answer)
    assert b"evil.example" not in answer.body
    assert world.project.url.encode() + b"upload/" in answer.body


def test_compressed_body_is_not_unpacked(world: WorkingProject):
    peer = world.peer()
    bomb = gzip.compress(b"<a>" * (20 * MIB))
    headers = {"Content-Encoding": "gzip"}
    before = world.kib()
    answer = peer.send("POST", "/sched", bomb, headers)
    assert answer.status == 400
    assert b"STO-X030" in answer.body
    assert world.kib() - before < 30 * 1024
    odd = {"Content-Type": "image/png", "Expect": "100-continue"}
    assert names_of(peer.send("POST", "/sched", peer.request(instances=1), odd))
