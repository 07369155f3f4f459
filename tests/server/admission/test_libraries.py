"""Libraries of a task on their way: gate, specification, statement, record, withdrawal."""

import asyncio
import dataclasses

import pytest

from stoilo.audit.format.facts import WorkunitRecord
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import PolicyRefusal, UserCodeError
from stoilo.core.libraries import load_library
from stoilo.core.statement import LIBRARIES, parse_statement
from stoilo.server.admission.outdated import OutdatedWork, Terms
from stoilo.server.db import rows
from stoilo.server.validation.validators import (
    Call,
    ValidatorJails,
    ValidatorProgram,
    Validators,
)
from tests.support.serverbench import make_bench, records

SCIPY = load_library("scipy").digest
VALIDATOR = b"def check(value):\n    return True\n"


@pytest.fixture
def bench(tmp_path):
    made = make_bench(tmp_path, held={"scipy": SCIPY})
    made.judge.libraries = ("scipy",)
    return made


def spec_of(bench, task_id):
    with bench.store.read() as connection:
        return rows.find_task(connection, task_id.partition("_")[0]).spec


def test_gate_is_asked_about_what_flavors_hold(bench):
    asyncio.run(bench.submit())
    assert bench.judge.last.libraries == ("scipy",)


def test_statement_names_the_flavors_libraries_as_critical(bench):
    workunit, payload = asyncio.run(bench.issued())
    said = parse_statement(payload)
    assert (said.libraries, said.critical) == ((SCIPY,), (LIBRARIES,))
    assert spec_of(bench, workunit).libraries == ("scipy",)


def test_statement_without_libraries_has_nothing_critical(tmp_path):
    _, payload = asyncio.run(make_bench(tmp_path).issued())
    assert parse_statement(payload).critical == ()


def test_public_record_names_them(bench):
    asyncio.run(bench.issued())
    bench.server.leaves.append_all(bench.log)
    (record,) = [one for one in records(bench) if isinstance(one, WorkunitRecord)]
    assert record.libraries == (SCIPY,)


def test_work_with_a_withdrawn_library_is_taken_back(bench):
    workunit, _ = asyncio.run(bench.issued())
    terms = Terms(digests=frozenset({SCIPY}))
    ((attempt, _),) = OutdatedWork(bench.store, lambda: terms).find()
    assert attempt.workunit == workunit


def test_work_of_a_flavor_whose_libraries_changed_is_taken_back(bench):
    _, payload = asyncio.run(bench.issued())
    said = parse_statement(payload)
    flavor = (said.flavor, said.level)
    for listed, void in (((SCIPY,), 0), ((), 1), ((SCIPY, "f" * 64), 1)):
        terms = Terms(libraries={flavor: listed})
        assert len(OutdatedWork(bench.store, lambda: terms).find()) == void  # noqa: B023 - called here


def test_task_is_judged_anew_when_no_flavor_holds_its_library_any_more(bench):
    asyncio.run(bench.submit())
    gatekeeper = bench.server.submissions._gatekeeper
    gatekeeper.held = tuple
    asked = bench.judge.asked
    bench.server.pipeline.run_once()
    assert bench.judge.asked == asked + 1


def test_validators_over_a_library_that_the_server_lacks_are_refused(
    bench, monkeypatch
):
    monkeypatch.setattr("stoilo.server.release.flavors.is_installed", lambda _: False)
    validators = {"validator_module": VALIDATOR, "init_entry": "check"}
    with pytest.raises(PolicyRefusal, match="server cannot run validators") as refusal:
        asyncio.run(bench.submit(**validators))
    assert (refusal.value.code, "scipy" in refusal.value.hint) == ("STO-K097", True)
    assert asyncio.run(bench.submit("k2"))  # without validators it needs nothing here


def test_validators_run_at_the_level_and_the_tasks_libraries():
    pytest.importorskip("scipy")
    source = (
        b"from scipy.linalg import det\ndef check(a):\n    return bool(det(a) < -1.9)\n"
    )
    jails = ValidatorJails()
    program = ValidatorProgram(source, "check", "", "numeric", ("scipy",))
    bare = dataclasses.replace(program, libraries=())
    value = encode([[1.0, 2.0], [3.0, 4.0]])
    try:
        assert Validators(jails.of).decide(Call(program, "init", (value,)))
        with pytest.raises(UserCodeError, match="STO-R053"):
            Validators(jails.of).decide(Call(bare, "init", (value,)))
    finally:
        jails.close()
