from __future__ import annotations

import gzip

import pytest
from engine_bench import EmbeddedBench

from stoilo.core.boinc.messages import HostInfo
from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.errors import DeniedError, InternalError
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.people.people import Person
from stoilo.server.engines.embedded.people.preferences import ProjectPreferences
from tests.support.engine import make_spec

BOUNDS = XmlBounds(document_bytes=10**6)
INFO = HostInfo(domain_name="annas-laptop", model="CPU <1>", os_name="Linux")


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def work(bench, user):
    bench.request(user, host=INFO)
    alone = Redundancy(min_quorum=1, target_results=1)
    bench.engine.create_workunits([make_spec(f"w{user}_1", redundancy=alone)])
    bench.finish(user, bench.fetch(user, host=INFO)[0], b"x")
    bench.settle()


def agree(bench, user, name="Ada"):
    account = bench.engine.accounts.ensure(f"u{user}@example.org", bench.clock())
    person = Person(name, exported=True)
    bench.engine.roster.choose(
        account.user_id, ProjectPreferences(), person, bench.clock()
    )
    return account


def export(bench, name):
    bench.engine.statistics.export_if_due(bench.clock())
    data = bench.engine.statistics.find(name).read_bytes()
    text = gzip.decompress(data) if name.endswith(".gz") else data
    return parse_xml(text, BOUNDS)


def test_only_those_who_agreed_are_exported(bench):
    work(bench, 1)
    work(bench, 2)
    agree(bench, 2)
    users, hosts = export(bench, "user.xml.gz"), export(bench, "host.xml.gz")
    (user,), (host,) = users.every("user"), hosts.every("host")
    assert user.string("name") == "Ada"
    assert user.number("total_credit") == host.number("total_credit") > 0
    assert host.string("p_model") == "CPU <1>"
    assert host.integer("userid") == user.integer("id")


def test_neither_address_nor_computers_name_or_cpid_leaves(bench, tmp_path):
    work(bench, 1)
    account = agree(bench, 1)
    export(bench, "tables.xml")
    text = b"".join(
        gzip.decompress(path.read_bytes())
        for path in (tmp_path / "engine/stats").glob("*.gz")
    )
    for secret in (account.email, account.key, "annas-laptop", f"{1:032x}"):
        assert secret.encode() not in text
    assert b"Ada" in text  # the negative control: it is this user's export


def test_totals_count_everybody(bench):
    work(bench, 1)
    work(bench, 2)
    tables = export(bench, "tables.xml")
    assert tables.integer("nusers_total") == tables.integer("nhosts_total") == 2
    assert tables.number("total_credit") > 0
    assert tables.integer("update_time") == bench.clock()


def test_it_is_written_once_a_day(bench, clock):
    due = bench.engine.statistics.export_if_due
    assert [due(clock()), due(clock() + 86_000), due(clock() + 86_400)] == [
        True,
        False,
        True,
    ]


def test_disk_that_refuses_keeps_the_old_files(bench, clock, tmp_path):
    before = export(bench, "tables.xml")
    stats = tmp_path / "engine/stats"
    (stats / "user.xml.gz").unlink()
    (stats / "user.xml.gz").mkdir()
    with pytest.raises(InternalError, match="STO-E072"):
        bench.engine.statistics.export_if_due(clock() + 10**6)
    assert export(bench, "tables.xml") == before
    assert not list(stats.glob(".*"))


@pytest.mark.parametrize("name", ["", "user.xml.gz", "../engine.sqlite"])
def test_unknown_file_is_not_found(bench, name):
    with pytest.raises(DeniedError, match="STO-E071"):
        bench.engine.statistics.find(name)
