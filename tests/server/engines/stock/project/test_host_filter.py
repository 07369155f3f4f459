"""Tasks that a volunteer does not want are not sent to him by a stock scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stock_bench import StockBench

from stoilo.core.types import Redundancy
from stoilo.server.engines.stock.creation.templates import input_template
from stoilo.server.engines.stock.installation.install import install_project
from stoilo.server.engines.stock.installation.levels import chosen_work
from stoilo.server.engines.stock.project.host_filter import (
    HOST_FILTERS,
    HostFilter,
    batch_of,
)
from tests.support.engine import make_spec
from tests.support.programs import ProgramSigner

MANY = Redundancy(min_quorum=5, target_results=5, max_total=8, max_success=8)


@pytest.fixture
def bench(tmp_path, clock):
    url = f"sqlite:///{tmp_path}/boinc.sqlite"
    made = StockBench(tmp_path / "p", clock, url, apps=())
    install_project(made.fake.root, ProgramSigner().offer(), url=url)
    yield made
    made.close()


def create(bench):
    """A workunit of each kind, of which every user may have a copy."""
    for one in HOST_FILTERS:
        name = "w_" + "".join(word[0] for word in one.words)
        spec = make_spec(name, redundancy=MANY)
        spec = replace(spec, reviewed=one.reviewed, public_source=one.public)
        bench.engine.create_workunits([spec])


def sent(bench, user):
    return {copy.rpartition("_")[0] for copy in bench.fetch(user)}


@pytest.mark.slow
def test_each_volunteer_is_sent_what_he_wants_and_nothing_else(bench):
    create(bench)
    chosen = {
        number: chosen_work("pure", wish) for number, wish in enumerate(HOST_FILTERS, 1)
    }
    for user, words in chosen.items():
        bench.hosts.choose(user, f"<stoilo_work>{words}</stoilo_work>")
    every = {"w_", "w_r", "w_p", "w_rp"}
    assert sent(bench, 5) == every  # who chose nothing
    assert [sent(bench, user) for user in chosen] == [
        every,
        {"w_p", "w_rp"},
        {"w_r", "w_rp"},
        {"w_rp"},
    ]


@pytest.mark.parametrize("wish", HOST_FILTERS)
def test_template_marks_what_the_task_is(wish):
    spec = make_spec("w_1")
    spec = replace(spec, reviewed=wish.reviewed, public_source=wish.public)
    batch = batch_of(reviewed=wish.reviewed, public=wish.public)
    text = input_template(spec, ()).text
    assert ("<batch>" in text) == (wish != HostFilter())
    assert (f"<batch>{batch}</batch>" in text) == (wish != HostFilter())
