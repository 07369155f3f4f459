from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stock_bench import StockBench

from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.types import Redundancy
from stoilo.server.engines.stock.input_files import input_template
from stoilo.server.engines.stock.installation.install import install_project
from stoilo.server.engines.stock.project.levels import (
    APPS,
    HOST_FILTERS,
    MOST_APPS,
    HostFilter,
    add_apps,
    batch_of,
    chosen_work,
    plan_class,
    plan_classes,
    render_preferences,
    set_plan_classes,
)
from tests.support.engine import make_spec
from tests.support.programs import ProgramSigner
from tests.support.stocktools.planclasses import fits

BOUNDS = XmlBounds(100_000)
OTHER = "<plan_classes>\n<plan_class><name>mt</name></plan_class>\n</plan_classes>\n"


def gets(chosen, app, *, batch=0):
    """The app's plan classes by which a volunteer has a workunit; None: chose nothing."""
    prefs = "" if chosen is None else f"<stoilo_work>{chosen}</stoilo_work>"
    specs = set_plan_classes("")
    return [one for one in plan_classes(app) if fits(specs, one, prefs, batch)]


def test_apps_fit_into_a_stock_scheduler():
    assert APPS[0] == "pure"
    assert len(APPS) <= MOST_APPS


def test_who_chose_nothing_gets_pure_and_nothing_else():
    assert gets(None, "pure") == ["stoilo_pure"]
    assert gets(None, "numeric") == gets(None, "tensor") == []


@pytest.mark.parametrize(
    ("app", "chosen", "sent"),
    [
        ("pure", "pure", True),
        ("pure", "tensor", True),
        ("numeric", "numeric", True),
        ("numeric", "tensor", True),
        ("numeric", "pure", False),
        ("numeric", "", False),
        ("tensor", "numeric", False),
        ("tensor", "tensors", False),
    ],
)
def test_level_is_sent_to_who_chose_it_or_a_higher_one(app, chosen, sent):
    assert bool(gets(chosen, app)) == sent


@given(
    st.sampled_from(APPS),
    st.sampled_from(APPS),
    st.sampled_from(HOST_FILTERS),
    st.booleans(),
    st.booleans(),
)
def test_only_what_a_volunteer_wants_is_sent_and_by_one_class(
    app, level, wish, reviewed, public
):
    allowed = APPS.index(level) >= APPS.index(app)
    wanted = (reviewed or not wish.reviewed) and (public or not wish.public)
    batch = batch_of(reviewed=reviewed, public=public)
    found = gets(chosen_work(level, wish), app, batch=batch)
    assert found == [plan_class(app, wish)] * (allowed and wanted)


def test_classes_of_others_stay():
    text = set_plan_classes(OTHER)
    assert "<name>mt</name>" in text
    assert set_plan_classes(text) == text


def test_changed_class_of_ours_is_set_again():
    text = set_plan_classes(OTHER).replace("^(numeric", "^(pure|numeric")
    assert set_plan_classes(text) == set_plan_classes(OTHER)


def test_app_that_is_named_is_not_named_again():
    once = add_apps("<boinc>\n</boinc>\n", APPS)
    assert add_apps(once, APPS) == once
    assert len(parse_xml(once.encode(), BOUNDS).every("app")) == len(APPS)


def test_page_offers_every_level_and_starts_with_the_lowest():
    page = render_preferences()
    assert all(f"'{app}' =>" in page for app in APPS)
    assert "<max_level>pure</max_level>" in page
    assert "<stoilo_work>pure</stoilo_work>" in page


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
