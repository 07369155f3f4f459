"""What a real deployment logs, explains and hides; then what retention leaves of it."""

from __future__ import annotations

import http.client
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from stoilo.audit.format.facts import (
    OutcomeRecord,
    Record,
    RetentionRecord,
    WorkunitRecord,
)
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf
from stoilo.audit.format.records import check_record, salted_commitment, task_commitment
from stoilo.audit.format.tiles import ENTRIES, decode_bundle, tile_at
from stoilo.audit.log.fsck import find_unfit_leaves
from stoilo.audit.log.side import SideStore, side_path
from stoilo.audit.read.source import open_source
from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.server.log.public_records import read_sealed
from stoilo.server.operations.retention import What, retain
from stoilo.testing.deployment import Deployment
from tests.support.memory_tree import tiles_of
from tests.support.wire import RawClient

OPEN = b"def shown_entry(kwargs):\n    return kwargs['x'] * 2  # shown marker\n"
SECRET = b"def hidden_entry(kwargs):\n    return kwargs['x'] + 'hidden marker'\n"
FAILING = b"def hidden_entry(kwargs):\n    raise ValueError('hidden error text')\n"
REFUSED = b"import os\n\ndef hidden_entry(kwargs):\n    return os.getcwd()\n"
VALIDATOR = b"def agree(a, b):\n    return a == b  # hidden validator\n"


@dataclass
class Logged:
    """A deployment that has done all kinds of things, and what is private of them."""

    deployment: Deployment
    tasks: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.deployment.data

    @property
    def url(self) -> str:
        assert self.deployment.line is not None
        return self.deployment.line.http

    def select(self, query: str, file: str = "server.sqlite") -> list[tuple[Any, ...]]:
        place = f"file:{self.data / file}?mode=ro"
        with closing(sqlite3.connect(place, uri=True)) as found:
            return found.execute(query).fetchall()

    def leaves(self) -> list[bytes]:
        """Return the published leaves, as any reader gets them."""
        source = open_source(self.url)
        size = int((source.checkpoint() or b"").split(b"\n")[1])
        found: list[bytes] = []
        for number in range(-(-size // 256)):
            tile = tile_at(ENTRIES, number, size)
            found += decode_bundle(source.tile(tile) or b"", tile.width)
        return found

    def records(self) -> list[tuple[Leaf, Record | None]]:
        """Return each leaf with its record, fetched by tile and checked."""
        source, leaves = open_source(self.url), self.leaves()
        texts: list[bytes | None] = []
        for start in range(0, len(leaves), 256):
            texts += source.records_of(start // 256, leaves[start : start + 256])
        pairs = zip(map(parse_leaf, leaves), texts, strict=True)
        return [
            (leaf, check_record(leaf, text) if text else None) for leaf, text in pairs
        ]

    def count(self, kind: LeafKind) -> int:
        return Counter(parse_leaf(leaf).kind for leaf in self.leaves())[kind]

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of a GET below ``/audit/``."""
        place = urlsplit(self.url)
        with closing(http.client.HTTPConnection(place.netloc)) as connection:
            connection.request("GET", f"/audit/{path}", headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()

    def public_bytes(self) -> bytes:
        """Return everything that the log's interface shows to everybody."""
        leaves = self.leaves()
        names = [f"records/{parse_leaf(leaf).digest}" for leaf in leaves]
        names += [f"records/tile/{n}" for n in range(-(-len(leaves) // 256))]
        names += [f"source/{content_digest(text)}" for text in (OPEN, SECRET, FAILING)]
        names += ["log/checkpoint", "log/policy.txt", "seen/0"]
        bodies = [self.get(name)[2] for name in names]
        return b"\n".join([*bodies, *leaves, *_tiles(self, len(leaves))])

    def secrets(self) -> list[bytes]:
        """Return what no outsider may see."""
        found = [one.encode() for one in self.tasks.values()]
        for (statement,) in self.select("select statement from attempt"):
            sealed = read_sealed(statement)
            found += [sealed.nonce.encode(), sealed.seed.encode()]
            found += [sealed.arguments.encode(), sealed.validator_module.encode()]
        queries = {
            "server.sqlite": "select salt from account union select digest from token "
            "union select request_digest from task union select digest from refusal",
            "engine/engine.sqlite": "select email from engine_user "
            "union select key_hash from engine_user union select cpid from engine_host",
        }
        for file, query in queries.items():
            found += [str(row[0]).encode() for row in self.select(query, file)]
        for (payload,) in self.select("select payload from outcome"):
            result = json.loads(payload)
            found += [result["nonce"].encode(), result["result_sha256"].encode()]
        words = ["hidden", "key-of-", "a label", str(self.data)]
        found += [word.encode() for word in words]
        return found + [content_digest(one).encode() for one in (SECRET, FAILING)]


def _tiles(logged: Logged, size: int) -> Iterator[bytes]:
    source = open_source(logged.url)
    for tile in tiles_of(size):
        yield source.tile(tile) or b""


def submit_all(client: RawClient) -> dict[str, str]:
    """Submit a published task, private ones, one that fails; have one refused."""
    hidden = {"entry": "hidden_entry", "label": "a label"}
    tasks = {
        "shown": client.submit(
            task_module=OPEN,
            entry="shown_entry",
            arguments=encode({"x": 21}),
            publish_source=True,
            idempotency_key="key-of-shown",
        ),
        "hidden": client.submit(
            task_module=SECRET,
            validator_module=VALIDATOR,
            compare_entry="agree",
            arguments=encode({"x": "hidden argument"}),
            idempotency_key="key-of-hidden",
            **hidden,
        ),
        "failing": client.submit(
            task_module=FAILING, idempotency_key="key-of-failing", **hidden
        ),
    }
    assert client.create(task_module=REFUSED, **hidden).status != "OK"
    for task in tasks.values():
        client.wait(task)
    return tasks


@pytest.fixture(scope="module")
def logged(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., object]
) -> Iterator[Logged]:
    data = tmp_path_factory.mktemp("logged") / "data"
    deployment = Deployment(data, volunteers=2)
    with deployment, RawClient(data / "connection.json") as client:
        found = Logged(deployment, submit_all(client))
        wait_until(lambda: found.count(LeafKind.RESULT) == len(found.tasks))
        yield found


def test_everything_that_happens_is_a_leaf(logged: Logged) -> None:
    kinds = Counter(leaf.kind for leaf, _ in logged.records())
    assert kinds[LeafKind.ADMISSION] == kinds[LeafKind.WORKUNIT] == 3
    assert kinds[LeafKind.RESULT] == 3
    assert kinds[LeafKind.POLICY] == 1
    others = {LeafKind.KEY, LeafKind.LEVEL, LeafKind.FLAVOR, LeafKind.REVOCATION}
    assert others | {LeafKind.OPERATOR} <= kinds.keys()


def test_every_leaf_but_admissions_has_its_record(logged: Logged) -> None:
    for leaf, record in logged.records():
        assert (record is None) == (leaf.kind is LeafKind.ADMISSION)


def test_every_admission_is_explained_and_every_outcome_points_to_it(
    logged: Logged,
) -> None:
    records = [record for _, record in logged.records()]
    explained = {
        one.admission: one for one in records if isinstance(one, WorkunitRecord)
    }
    places = [
        place
        for place, (leaf, _) in enumerate(logged.records())
        if leaf.kind is LeafKind.ADMISSION
    ]
    assert sorted(explained) == places
    outcomes = [one for one in records if isinstance(one, OutcomeRecord)]
    assert {one.admission for one in outcomes} == set(places)
    assert {one.state for one in outcomes} == {"succeeded", "user_error"}
    assert {one.agreeing for one in outcomes} == {2}


def test_researcher_can_check_his_workunit_s_record(logged: Logged) -> None:
    name = task_commitment(logged.tasks["hidden"])
    (record,) = (
        one
        for _, one in logged.records()
        if isinstance(one, WorkunitRecord) and one.task == name
    )
    found = dict(logged.select("select task_id, statement from attempt"))
    sealed = read_sealed(found[logged.tasks["hidden"]])
    assert record.source == salted_commitment(
        sealed.nonce, "source", content_digest(SECRET)
    )
    assert (record.level, record.limits) == (sealed.level, sealed.limits)


def test_nothing_private_is_in_any_public_byte(logged: Logged) -> None:
    public = logged.public_bytes()
    found = [secret for secret in logged.secrets() if secret and secret in public]
    assert found == []
    for shown in (b"shown marker", content_digest(OPEN).encode()):  # the search works
        assert shown in public


def test_only_the_published_source_is_shown(logged: Logged) -> None:
    source = open_source(logged.url)
    assert source.published_source(content_digest(OPEN)) == OPEN
    assert source.published_source(content_digest(SECRET)) is None
    assert open_source(logged.data).published_source(content_digest(OPEN)) == OPEN


def test_cache_headers_say_what_may_be_kept(logged: Logged) -> None:
    _, headers, _ = logged.get("log/checkpoint")
    assert headers["cache-control"] == "no-cache"
    assert logged.get("log/policy.txt", **{"If-None-Match": "x"})[0] == 200
    digest = next(leaf.digest for leaf, one in logged.records() if one)
    status, headers, body = logged.get(f"records/{digest}")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert "immutable" in headers["cache-control"]
    again = logged.get(f"records/{digest}", **{"If-None-Match": headers["etag"]})
    assert (again[0], again[2]) == (304, b"")
    assert json.loads(body)["origin"] == "stoilo.local/development"


def test_side_store_and_log_agree(logged: Logged) -> None:
    with closing(SideStore.read_file(side_path(logged.data))) as side:
        assert list(side.scrub()) == []
        found = find_unfit_leaves(side, enumerate(logged.leaves()))
        assert not any(fault for _, fault in found)


def deletions(logged: Logged) -> dict[str, RetentionRecord]:
    records = [one for _, one in logged.records() if isinstance(one, RetentionRecord)]
    return {one.what: one for one in records}


def test_retention_deletes_for_good_and_says_so_running_or_stopped(
    tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    data = tmp_path / "data"
    with Deployment(data, volunteers=2) as deployment:
        with RawClient(data / "connection.json") as client:
            logged = Logged(deployment, submit_all(client))
        wait_until(lambda: logged.count(LeafKind.RESULT) == len(logged.tasks))
        now = int(time.time()) + 1
        done = retain(data, What.SOURCES, now, now, {})
        assert done.published == (content_digest(OPEN),)
        wait_until(lambda: "sources" in deletions(logged))
        assert logged.get(f"source/{content_digest(OPEN)}")[0] == 410
        deployment.stop()
        assert retain(data, What.RESULTS, now, now, {}).count == 3
        assert retain(data, What.SALTS, now, now, {}).count >= 6
        left = b"".join(path.read_bytes() for path in data.glob("*.sqlite*"))
        deployment.start()
        wait_until(lambda: {"results", "salts"} <= deletions(logged).keys())
        assert deletions(logged)["sources"].published == done.published
    for gone in (b"shown marker", b"hidden marker", b"hidden error text"):
        assert gone not in left
    assert b"a label" in left  # the search works
