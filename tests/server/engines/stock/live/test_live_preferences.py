"""What a live scheduler sends to volunteers who chose a level, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoilo.core.types import Redundancy
from tests.support.engine import make_spec

pytestmark = pytest.mark.slow
SINGLE = Redundancy(min_quorum=1, target_results=1)


@pytest.mark.parametrize(
    ("chosen", "gets"),
    [("", False), ("pure", False), ("numeric", True), ("tensor", True)],
)
def test_level_above_pure_is_sent_to_who_chose_it(bench, chosen, gets):
    bench.engine.create_workunits([make_spec("w_1", app="numeric", redundancy=SINGLE)])
    if chosen:
        bench.choose(1, f"<stoilo_work>{chosen}</stoilo_work>")
    assert bool(bench.fetch(1)) == gets


@pytest.mark.parametrize(
    ("words", "gets"),
    [("pure", True), ("pure reviewed", False), ("pure public", True)],
)
def test_kind_of_task_is_sent_to_who_wants_it(bench, words, gets):
    spec = make_spec("w_1", redundancy=SINGLE)
    bench.engine.create_workunits([replace(spec, public_source=True)])
    bench.choose(1, f"<stoilo_work>{words}</stoilo_work>")
    assert bool(bench.fetch(1)) == gets


def test_volunteer_who_chose_nothing_gets_pure(bench):
    bench.engine.create_workunits([make_spec("w_1", redundancy=SINGLE)])
    assert bench.fetch(1)


def test_upload_without_the_project_s_certificate_is_refused(bench):
    bench.engine.create_workunits([make_spec("w_1", redundancy=SINGLE)])
    (copy,) = bench.fetch(1)
    volunteer = bench.volunteer(1)
    assert volunteer.upload(bench.prefix + copy, b"x", signature="00") != ""
    assert volunteer.upload(bench.prefix + copy, b"x") == ""
