from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from stoilo.audit.format.proof import LeafKind
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import (
    DeniedError,
    InternalError,
    PolicyRefusal,
    TrustError,
    UsageError,
)
from stoilo.policies.policy import Quota
from stoilo.server.admission import tokens
from stoilo.server.admission.gatekeeper import GateRefusal
from stoilo.server.db import schema
from tests.support.serverbench import SOURCE, Bench, make_bench

if TYPE_CHECKING:
    from pathlib import Path


def count_tasks(bench: Bench) -> int:
    with bench.store.read() as connection:
        return connection.scalar(select(func.count()).select_from(schema.task)) or 0


def test_same_key_and_content_answers_the_same_task(bench: Bench) -> None:
    first, second = asyncio.run(bench.submit()), asyncio.run(bench.submit())
    assert first == second
    assert count_tasks(bench) == 1


def test_same_key_with_other_content_is_refused(bench: Bench) -> None:
    asyncio.run(bench.submit())
    with pytest.raises(UsageError, match="STO-R011"):
        asyncio.run(bench.submit(arguments=encode({"x": 2})))


def test_same_key_twice_in_one_batch_makes_one_task(bench: Bench) -> None:
    async def both() -> set[str]:
        return set(await asyncio.gather(bench.submit(), bench.submit()))

    assert len(asyncio.run(both())) == 1
    assert count_tasks(bench) == 1


def test_same_key_of_another_owner_is_another_task(bench: Bench) -> None:
    first = asyncio.run(bench.submit())
    with bench.store.write() as connection:
        bench.token = tokens.issue_token(
            connection, "bob", tokens.Role.RESEARCHER, bench.clock()
        )
    assert asyncio.run(bench.submit()) != first


def test_many_at_once_share_transactions_and_keep_their_answers(bench: Bench) -> None:
    async def many() -> list[str]:
        return await asyncio.gather(*(bench.submit(f"k{n}") for n in range(60)))

    assert len(set(asyncio.run(many()))) == 60
    assert bench.judge.asked == 1


def test_unknown_token_is_refused_before_the_source_is_looked_at(bench: Bench) -> None:
    bench.token = "sto_guess"
    with pytest.raises(DeniedError, match="STO-R001"):
        asyncio.run(bench.submit(task_module=b"import os"))
    assert bench.judge.asked == 0


def test_refused_source_leaves_no_task_but_a_batched_leaf(bench: Bench) -> None:
    for key in ("a", "b"):
        with pytest.raises(GateRefusal) as caught:
            asyncio.run(bench.submit(key, task_module=b"import os\n" + SOURCE))
        assert caught.value.findings
    bench.server.leaves.flush_refusals()
    bench.server.pipeline.run_once()
    assert count_tasks(bench) == 0
    (leaf,) = bench.leaves()
    assert (leaf.kind, leaf.count) == (LeafKind.REFUSALS, 2)


def test_verdict_survives_a_restart(bench: Bench, tmp_path: Path) -> None:
    asyncio.run(bench.submit())
    bench.store.close()
    url = bench.store.engine.url.render_as_string(hide_password=False)
    again = make_bench(tmp_path, url=url)
    asyncio.run(again.submit("k2"))
    assert again.judge.asked == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("idempotency_key", ""),
        ("idempotency_key", "x" * 65),
        ("task_module", b""),
        ("task_module", b"#" * (256 * 1024 + 1)),
        ("entry", "no name"),
        ("init_entry", "check"),
        ("arguments", encode(b"x" * (1024 * 1024))),
        ("map_items", 10_001),
        ("map_items", 3),
        ("label", "x" * 129),
    ],
)
def test_field_out_of_bounds_is_named(bench: Bench, field: str, value: object) -> None:
    request = bench.request(**{"key": "k"} | ({} if field == "key" else {field: value}))
    with pytest.raises(UsageError, match="STO-R010"):
        asyncio.run(bench.server.submissions.create(bench.token, request))
    assert count_tasks(bench) == 0


@pytest.mark.parametrize("data", [b"", b"STO", b"\x80\x04K\x01.", encode(1)[:-1]])
def test_malformed_arguments_are_a_trust_error(bench: Bench, data: bytes) -> None:
    with pytest.raises(TrustError, match="STO-D"):
        asyncio.run(bench.submit(arguments=data))


def test_blob_that_was_not_uploaded_is_not_found(bench: Bench) -> None:
    with pytest.raises(DeniedError, match="STO-R012"):
        asyncio.run(bench.submit(blobs=["0" * 64]))


def test_limit_above_the_levels_is_refused_by_name(bench: Bench) -> None:
    request = bench.request()
    request.limits.cpu_s = 601
    with pytest.raises(UsageError, match="cpu_s=601"):
        asyncio.run(bench.server.submissions.create(bench.token, request))


def test_inconsistent_redundancy_names_the_relation(bench: Bench) -> None:
    request = bench.request()
    request.redundancy.min_quorum = 4
    request.redundancy.target_results = 2
    with pytest.raises(UsageError, match="min_quorum <= target_results"):
        asyncio.run(bench.server.submissions.create(bench.token, request))


def test_open_task_quota_is_per_account(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, Quota(running_tasks=2))

    async def three() -> list[object]:
        calls = (bench.submit(f"k{n}") for n in range(3))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    answers = asyncio.run(three())
    refused = [one for one in answers if isinstance(one, PolicyRefusal)]
    assert [one.code for one in refused] == ["STO-R004"]


def test_submission_rate_is_limited_before_parsing(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, Quota(tasks_per_hour=1))
    asyncio.run(bench.submit())
    with pytest.raises(PolicyRefusal, match="STO-R005"):
        asyncio.run(bench.submit("k2", arguments=b"nonsense"))


def test_level_closed_by_the_policy_is_denied(bench: Bench) -> None:
    with pytest.raises(DeniedError, match="STO-P050"):
        asyncio.run(bench.submit(level="gpu"))


def test_broken_database_is_an_answer_not_a_traceback(bench: Bench) -> None:
    asyncio.run(bench.submit())
    with bench.store.write() as connection:
        connection.exec_driver_sql("DROP TABLE attempt")
    with pytest.raises(InternalError, match="STO-R030"):
        asyncio.run(bench.submit("k2"))
    assert count_tasks(bench) == 1


REFUSED = b"STO\x01l" + (3000).to_bytes(4, "little") + b"l\0\0\0\0" * 2999 + b"?"
"""Arguments that only a whole reading finds out."""


@pytest.mark.parametrize(
    ("quota", "read"), [(5, 5), (10**6, 40)], ids=["quota", "without"]
)
def test_refused_arguments_that_cost_a_reading_count_also_side_by_side(
    tmp_path: Path, quota: int, read: int
) -> None:
    bench = make_bench(tmp_path, Quota(refusals_per_hour=quota))

    async def run() -> list[str]:
        calls = [bench.submit(f"k{n}", arguments=REFUSED) for n in range(40)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [getattr(one, "code", "") for one in found]

    codes = Counter(asyncio.run(run()))
    assert codes == Counter({"STO-D002": read, "STO-R007": 40 - read})


def test_cheap_refusals_count_for_nothing(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, Quota(refusals_per_hour=5))

    async def run() -> None:
        for number in range(10):
            with pytest.raises(TrustError, match="STO-D002"):
                await bench.submit(f"k{number}", arguments=REFUSED[:100])

    asyncio.run(run())


HEAVY = encode([[n] for n in range(3000)])


@pytest.mark.parametrize(
    "arguments",
    [HEAVY, encode({"x": b"v" * 100_000})],
    ids=["many elements", "many bytes"],
)
def test_heavy_request_is_stored_and_repeated_like_any(
    bench: Bench, arguments: bytes
) -> None:
    async def run() -> None:
        made = await bench.submit("heavy", arguments=arguments)
        assert await bench.submit("heavy", arguments=arguments) == made
        with pytest.raises(UsageError, match="STO-R011"):
            await bench.submit("heavy")

    asyncio.run(run())


@pytest.mark.parametrize("other", [True, False], ids=["another's", "its own"])
def test_heavy_requests_of_one_account_hold_up_only_its_own(
    bench: Bench, other: bool
) -> None:
    with bench.store.write() as connection:
        eve = tokens.issue_token(
            connection, "eve", tokens.Role.RESEARCHER, bench.clock()
        )
    ended: list[str] = []

    async def one(token: str, key: str) -> None:
        request = bench.request(key, arguments=HEAVY)
        await bench.server.submissions.create(token, request)
        ended.append(key)

    async def run() -> None:
        many = [asyncio.create_task(one(eve, f"e{n}")) for n in range(30)]
        await asyncio.sleep(0)
        await one(bench.token if other else eve, "last")
        await asyncio.gather(*many)

    asyncio.run(run())
    assert (ended.index("last") < 15) is other


@pytest.mark.parametrize(
    ("quota", "judged"), [(5, 5), (10**6, 40)], ids=["quota", "without"]
)
def test_refused_sources_side_by_side_are_judged_up_to_the_quota(
    tmp_path: Path, quota: int, judged: int
) -> None:
    bench = make_bench(tmp_path, Quota(refusals_per_hour=quota))

    async def run() -> list[str]:
        sources = [b"import os\n" + SOURCE + b"# %d" % n for n in range(40)]
        calls = [
            bench.submit(f"k{n}", task_module=one) for n, one in enumerate(sources)
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
        return [getattr(one, "code", "") for one in found]

    codes = Counter(asyncio.run(run()))
    assert codes == Counter({"STO-R020": judged, "STO-R007": 40 - judged})


def test_admitted_sources_side_by_side_wait_for_refusals_that_do_not_come(
    tmp_path: Path,
) -> None:
    bench = make_bench(tmp_path, Quota(refusals_per_hour=2))

    async def run() -> None:
        sources = [SOURCE + b"# %d" % number for number in range(30)]
        calls = [
            bench.submit(f"k{n}", task_module=one) for n, one in enumerate(sources)
        ]
        await asyncio.gather(*calls)

    asyncio.run(run())
    assert count_tasks(bench) == 30
