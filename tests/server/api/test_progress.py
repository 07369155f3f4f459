"""What trainers report: whose it is, how it is kept, what is refused."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.rpc import progress_pb2 as pb
from stoilo.server.admission import tokens
from stoilo.server.api import progress
from stoilo.server.api.progress import MOST_POINTS, MOST_SENT, MOST_TRAININGS, Point
from tests.support.console import run
from tests.support.serverbench import Bench, make_bench

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.db.records import Owner


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path)


def owner_of(bench: Bench, name: str) -> Owner:
    with bench.store.write() as connection:
        role = tokens.Role.RESEARCHER
        token = tokens.issue_token(connection, name, role, bench.clock())
        return tokens.find_owner(connection, token, bench.clock())


def asked(
    *versions: int, label: str = "run", **more: object
) -> pb.ReportProgressRequest:
    points = [
        pb.ProgressPoint(version=n, loss=1.0 / (n + 1), held_out=math.nan, answers=2)
        for n in versions
    ]
    return pb.ReportProgressRequest(label=label, points=points, **more)


def versions(bench: Bench, owner: Owner, label: str = "run") -> list[int]:
    training = bench.server.progress_service.read(owner, label).training
    return [one.version for one in training.points] if training else []


def test_points_of_later_reports_are_added(bench: Bench) -> None:
    ada, report = owner_of(bench, "ada"), bench.server.progress_service.report
    report(ada, asked(1, 2))
    bench.clock.now += 3600
    report(ada, asked(2, 3, 6, refused=4, ended=True))
    training = bench.server.progress_service.read(ada, "run").training
    assert training is not None
    assert [one.version for one in training.points] == [1, 2, 3, 6]
    assert (training.refused, training.ended) == (4, True)
    assert training.versions_per_hour == 4.0


def test_training_that_begins_anew_takes_the_place(bench: Bench) -> None:
    ada, report = owner_of(bench, "ada"), bench.server.progress_service.report
    report(ada, asked(*range(1, 100)))
    report(ada, asked(1))
    assert versions(bench, ada) == [1]


def test_report_under_another_s_label_changes_only_one_s_own(bench: Bench) -> None:
    ada, eve = owner_of(bench, "ada"), owner_of(bench, "eve")
    report = bench.server.progress_service.report
    report(ada, asked(1, 2))
    report(eve, asked(1, 2, 3, 4))
    assert versions(bench, ada) == [1, 2]
    assert versions(bench, eve) == [1, 2, 3, 4]  # control


def test_mark_changes_with_the_owner_s_own_reports_alone(bench: Bench) -> None:
    ada, eve = owner_of(bench, "ada"), owner_of(bench, "eve")
    service = bench.server.progress_service
    before = service.mark(ada, "run")
    service.report(eve, asked(1))
    assert service.mark(ada, "run") == before
    service.report(ada, asked(1))
    assert service.mark(ada, "run") != before


def test_mark_changes_with_each_step_of_a_task(bench: Bench) -> None:
    ada, service = owner_of(bench, "ada"), bench.server.progress_service
    before = service.mark(ada, "run")
    task = run(bench.submit("k1"))
    made = service.mark(ada, "run")
    bench.server.desk.cancel(ada, task)
    assert len({before, made, service.mark(ada, "run")}) == 3


def test_tasks_of_a_label_are_found_by_what_they_share(bench: Bench) -> None:
    ada = owner_of(bench, "ada")
    wanted = {run(bench.submit(f"k{n}", label=f"run 0-{n}")) for n in (1, 2)}
    run(bench.submit("k3", label="other 1"))
    found = bench.server.progress_service.read(ada, "run")
    assert {one.task_id for one in found.tasks} == wanted
    assert not bench.server.progress_service.read(owner_of(bench, "eve"), "run").tasks


def test_newest_trainings_are_kept(bench: Bench) -> None:
    ada = owner_of(bench, "ada")
    for number in range(MOST_TRAININGS + 1):
        bench.clock.now += 1
        bench.server.progress_service.report(ada, asked(1, label=f"t{number}"))
    assert versions(bench, ada, "t0") == []
    assert versions(bench, ada, "t1") == [1]


BAD = {
    "no label": asked(1, label=""),
    "long label": asked(1, label="x" * 129),
    "no text": asked(1, label="\x00"),
    "many points": asked(*range(MOST_SENT + 1)),
    "large version": asked(2**63),
    "large count": asked(1, refused=2**64 - 1),
}


@pytest.mark.parametrize("what", BAD)
def test_report_out_of_bounds_is_refused_and_keeps_what_was(
    bench: Bench, what: str
) -> None:
    ada, service = owner_of(bench, "ada"), bench.server.progress_service
    service.report(ada, asked(5))
    with pytest.raises(UsageError, match="STO-R010"):
        service.report(ada, BAD[what])
    assert versions(bench, ada) == [5]


def test_account_that_reports_without_end_is_told_to_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "REPORTS_PER_HOUR", 2)
    ada, service = owner_of(bench, "ada"), bench.server.progress_service
    service.report(ada, asked(1))
    service.report(ada, asked(2))
    with pytest.raises(StoiloError, match="STO-R005"):
        service.report(ada, asked(3))


@given(
    st.sets(st.integers(0, 2**63 - 1), max_size=900),
    st.integers(2, MOST_POINTS),
)
def test_thinned_curve_keeps_its_end_its_order_and_its_answers(
    places: set[int], most: int
) -> None:
    points = [Point(one, 0.0, 0.0, 1) for one in sorted(places)]
    kept = progress.thin(points, most)
    assert len(kept) <= most
    assert [one.version for one in kept] == sorted(one.version for one in kept)
    assert kept[-1:] == () or kept[-1].version == max(places)
    assert sum(one.answers for one in kept) == len(points)


def test_thinned_curve_leaves_no_part_out() -> None:
    points = [Point(one, 0.0, 0.0, 1) for one in range(10_000)]
    kept = progress.thin(points, 100)
    gaps = [b.version - a.version for a, b in itertools.pairwise(kept)]
    assert max(gaps) <= 2 * 10_000 / 100
