from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.server.engines.stock.installation.app_versions import (
    KnownVersion,
    new_versions,
    parse_version_name,
)
from stoilo.server.engines.stock.project.levels import plan_classes
from tests.support.programs import ProgramSigner

APPS = ("pure", "numeric")
SIGNER = ProgramSigner()
PROGRAM = SIGNER.program()


def known(folders):
    return [
        KnownVersion(one.app, one.number, one.platform, one.content) for one in folders
    ]


def test_every_app_gets_the_program_on_its_platform():
    made = new_versions(APPS, [PROGRAM], [])
    assert [one.path for one in made] == [
        f"apps/{app}/1.00/x86_64-pc-linux-gnu__{name}"
        for app in APPS
        for name in plan_classes(app)
    ]


def test_same_program_makes_no_new_version():
    made = new_versions(APPS, [PROGRAM], [])
    assert new_versions(APPS, [PROGRAM], known(made)) == ()


@pytest.mark.parametrize(
    "other", [SIGNER.program(b"new launcher"), ProgramSigner().program()]
)
def test_other_file_or_signature_makes_the_next_version(other):
    made = new_versions(APPS, [other], known(new_versions(APPS, [PROGRAM], [])))
    assert {one.number for one in made} == {101}


def test_program_of_a_former_version_becomes_a_new_one():
    first = new_versions(APPS, [PROGRAM], [])
    second = new_versions(APPS, [SIGNER.program(b"bad")], known(first))
    third = new_versions(APPS, [PROGRAM], known([*first, *second]))
    assert {one.number for one in third} == {102}


@given(st.integers(0, 99_99))
def test_number_of_a_directory_is_read_as_it_is_written(number):
    whole, rest = divmod(number, 100)
    assert parse_version_name(f"{whole}.{rest:02d}") == number


@pytest.mark.parametrize("name", ["", "1.", "1.00x", ".00", "one", "1.000"])
def test_directory_that_is_no_version_is_left_out(name):
    assert parse_version_name(name) is None
