"""What is looked at before a scheduler request is read and parsed."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
import urllib3
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from bench.stock_request import render_stock_request
from stoilo.core.boinc.messages import SchedulerRequest
from stoilo.executor.volunteer.scheduler_rpc import parse_reply, render_request
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.web import rate_limit
from stoilo.server.engines.embedded.web.app import HttpOptions
from stoilo.server.engines.embedded.web.body_limit import (
    LARGE_BYTES,
    LARGE_OF_NEWCOMERS,
    LARGE_PLACES,
    BodiesInHand,
)
from stoilo.server.engines.embedded.web.rate_limit import (
    STRANGER_BYTES,
    CallLimits,
    KnownKeys,
    peek_key,
)
from stoilo.server.engines.embedded.web.requests import parse_request
from tests.support.engine import ProjectServer
from tests.support.server import ManualClock

KEY = "k" * 32
REQUEST = (
    "<scheduler_request><authenticator>{key}</authenticator><hostid>0</hostid>"
    "<rpc_seqno>1</rpc_seqno><stoilo_own_program/><host_info><host_cpid>a</host_cpid>"
    "</host_info>{extra}</scheduler_request>"
)
MOST_WAIT_S = 60.0


# ----------------------------------------------------------------- the key in the head


def test_stock_clients_key_stands_in_the_head():
    told = {"host_id": 1, "seqno": 1, "cpid": "c", "code_sign_key": "x", "copy": ""}
    assert peek_key(render_stock_request(key=KEY, **told)) == KEY


def test_our_volunteers_key_stands_in_the_head():
    assert peek_key(render_request(SchedulerRequest(KEY, 0, 1, "c" * 32))) == KEY


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"<scheduler_request>",
        b"<scheduler_request><a/><authenticator>k</authenticator>",
        b"<scheduler_request><authenticator>k&lt;</authenticator>",
        b"<scheduler_request><authenticator><![CDATA[k]]></authenticator>",
        b"<scheduler_request><!-- --><authenticator>k</authenticator>",
        b"<scheduler_request><authenticator>" + b"k" * 5000 + b"</authenticator>",
        b" " * 5000 + b"<scheduler_request><authenticator>k</authenticator>",
    ],
)
def test_key_elsewhere_is_not_seen(head):
    assert peek_key(head) == ""


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_key_that_is_seen_is_the_one_that_counts(before, after):
    begin = b"<scheduler_request><authenticator>k1</authenticator>"
    rest = b"<host_info><host_cpid>a</host_cpid></host_info></scheduler_request>"
    for whole in (before + begin + after + rest, begin + before + after + rest):
        key = peek_key(whole)
        try:
            parsed = parse_request(whole)
        except Exception:  # noqa: BLE001, S112 - whatever cannot be read has no key
            continue
        assert key in {"", parsed.authenticator}


# ----------------------------------------------------------------------- known keys


def test_known_key_is_asked_for_once_in_a_while():
    asked, now = [], [0.0]
    keys = KnownKeys(lambda key: asked.append(key) or True, clock=lambda: now[0])
    assert not keys.remembers("a")
    assert keys.ask("a")
    assert keys.remembers("a")
    now[0] = rate_limit.KNOWN_FOR_S
    assert not keys.remembers("a")
    assert asked == ["a"]


def test_unknown_keys_are_not_kept_and_known_ones_are_bounded():
    keys = KnownKeys(lambda key: key != "x", most=2)
    for key in ("x", "a", "b", "c"):
        keys.ask(key)
    assert [keys.remembers(key) for key in "xabc"] == [False, False, True, True]


# ------------------------------------------------------------------------ over sockets


class Parser:
    """Counts requests that are parsed, and can hold them."""

    def __init__(self):
        self.sizes, self.held = [], threading.Event()
        self.held.set()

    def __call__(self, body):
        self.sizes.append(len(body))
        assert self.held.wait(MOST_WAIT_S)
        return parse_request(body)


@dataclass
class World:
    engine: object
    server: ProjectServer
    bodies: BodiesInHand
    parser: Parser
    pool: urllib3.PoolManager

    def post(self, key, extra=""):
        body = REQUEST.format(key=key, extra=extra)
        return self.pool.request("POST", f"{self.server.url}sched", body=body)

    def key(self, name="a"):
        return self.engine.accounts.ensure(f"{name}@example.org", 1).key

    def in_hand(self):
        return dict(self.bodies._large)

    def become_newcomer(self, name):
        """Let an account be one that somebody made over the web."""
        self.key(name)
        mine = schema.users.c.email == f"{name}@example.org"
        with self.engine._database.write() as connection:
            connection.execute(
                update(schema.users).where(mine).values(password_hash="of nobody")
            )

    def reply(self, *call):
        return parse_reply(self.post(*call).data, self.server.url)


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Return what makes a world, of addresses that are not this machine's if asked."""
    parser, bodies = Parser(), BodiesInHand()
    monkeypatch.setattr(rate_limit, "BodiesInHand", lambda: bodies)
    monkeypatch.setattr(rate_limit, "parse_request", parser)
    bench = EmbeddedBench(tmp_path / "engine", ManualClock(1_800_000_000))
    servers = []

    def make(**limits):
        options = HttpOptions(calls=CallLimits(**limits))
        servers.append(ProjectServer(bench.engine, options=options).__enter__())
        pool = urllib3.PoolManager(maxsize=8, retries=False)
        return World(bench.engine, servers[0], bodies, parser, pool)

    yield make
    parser.held.set()
    for server in servers:
        server.__exit__()
    bench.engine.close()


def test_unknown_key_is_told_without_its_body_being_parsed(serve):
    world = serve()
    assert world.reply("0" * 32, "x" * STRANGER_BYTES).bad_key
    assert world.parser.sizes == []
    assert not world.reply(world.key()).bad_key
    assert len(world.parser.sizes) == 1


def test_body_without_a_key_at_its_beginning_is_small(serve):
    world = serve()
    assert world.post("k&lt;", "x" * STRANGER_BYTES).status == 413
    assert world.parser.sizes == []
    assert world.reply("k&lt;").bad_key


def test_body_of_an_account_may_be_large(serve):
    world = serve()
    assert not world.reply(world.key(), f"<a>{'x' * STRANGER_BYTES}</a>").bad_key
    assert world.parser.sizes[0] > STRANGER_BYTES


def test_account_with_too_many_calls_is_not_parsed(serve):
    world = serve(scheduler_calls_of_account=1)
    world.post(world.key())
    assert "STO-E068" in world.reply(world.key()).messages[0]
    assert len(world.parser.sizes) == 1


def test_address_with_too_many_calls_is_not_read(serve, monkeypatch):
    monkeypatch.setattr(
        "stoilo.server.engines.embedded.web.rate_limit._network", lambda _address: "far"
    )
    world = serve(scheduler_calls_of_address=1)
    world.post("0" * 32)
    peeked = []
    monkeypatch.setattr(rate_limit, "peek_key", peeked.append)
    assert "STO-E068" in world.reply(world.key()).messages[0]
    assert peeked == []


def test_first_of_two_keys_counts(serve):
    world = serve()
    second = f"</authenticator><authenticator>{world.key()}"
    assert world.reply("0" * 32 + second).bad_key
    assert world.reply("k" * 65 + second).bad_key
    assert not world.reply(world.key() + second).bad_key


LARGE = f"<a>{'x' * LARGE_BYTES}</a>"


def post_large(world, name):
    """Send a large request of an account in a thread of its own; return the thread."""
    thread = threading.Thread(target=world.post, args=(world.key(name), LARGE))
    thread.start()
    return thread


def test_large_bodies_being_parsed_hold_up_no_small_ones(serve, wait_until):
    world = serve()
    world.parser.held.clear()
    threads = [post_large(world, name) for name in "abcdef"]
    wait_until(lambda: world.parser.sizes)
    answer = world.pool.request("GET", world.server.url)
    config = world.pool.request("GET", f"{world.server.url}get_project_config.php")
    assert (answer.status, config.status) == (200, 200)
    assert len(world.parser.sizes) == 1  # the others wait for their turn
    world.parser.held.set()
    for thread in threads:
        thread.join(MOST_WAIT_S)
    assert len(world.parser.sizes) == 6


def test_account_has_one_large_body_in_hand(serve, wait_until):
    world = serve()
    world.parser.held.clear()
    first = post_large(world, "a")
    wait_until(lambda: world.parser.sizes)
    assert "STO-E068" in world.reply(world.key("a"), LARGE).messages[0]
    world.parser.held.set()
    first.join(MOST_WAIT_S)
    assert len(world.parser.sizes) == 1
    assert world.reply(world.key("a"), LARGE).messages == ()


def test_large_bodies_that_wait_are_few_and_small_ones_come_through(serve, wait_until):
    world = serve()
    world.parser.held.clear()
    threads = [post_large(world, f"u{number}") for number in range(LARGE_PLACES)]
    wait_until(lambda: len(world.in_hand()) == LARGE_PLACES)
    assert "STO-E068" in world.reply(world.key("late"), LARGE).messages[0]
    world.parser.held.set()
    for thread in threads:
        thread.join(MOST_WAIT_S)
    assert world.reply(world.key("late"), LARGE).messages == ()
    assert world.in_hand() == {}


def test_newcomers_take_not_all_places_for_large_bodies(serve, wait_until):
    world = serve()
    world.parser.held.clear()
    names = [f"u{number}" for number in range(LARGE_OF_NEWCOMERS + 1)]
    for name in names:
        world.become_newcomer(name)
    threads = [post_large(world, name) for name in names[:-1]]
    wait_until(lambda: len(world.in_hand()) == LARGE_OF_NEWCOMERS)
    assert "STO-E068" in world.reply(world.key(names[-1]), LARGE).messages[0]
    threads.append(post_large(world, "known"))
    wait_until(lambda: len(world.in_hand()) == LARGE_OF_NEWCOMERS + 1)
    world.parser.held.set()
    for thread in threads:
        thread.join(MOST_WAIT_S)
