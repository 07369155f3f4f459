"""The corpus is what the project says of it: areas, ideas, controls."""

from collections import Counter
from pathlib import Path

import pytest

from stoilo.cli.suite import read_cases
from stoilo.core.codebook import load_codebook
from stoilo.policies.levels import level_names
from stoilo.sandbox.suite.case import Goal, Kind

CASES = Path(__file__).parent / "cases"
AREAS = {
    "language": 80,
    "stdlib": 30,
    "native": 30,
    "numpy": 15,
    "torch": 20,
    "limits": 30,
    "result": 30,
    "validator": 20,
    "submission": 40,
    "kernel": 60,
}
"""Area → how many counted cases it has at least."""

ADVISORIES = {
    *("CVE-2023-37271", "CVE-2023-41039", "CVE-2024-47532", "CVE-2025-22153"),
    *("CVE-2026-55830", "CVE-2026-76825", "RestrictedPython 8.5"),
    *("CVE-2025-5120", "CVE-2025-9959", "asteval issue 86", "CVE-2021-42574"),
}
"""Published escapes from RestrictedPython and its peers; each has a case."""


@pytest.fixture(scope="module")
def cases():
    return read_cases(CASES)


def area_of(case):
    return case.name.partition("/")[0]


def count(cases):
    return Counter(area_of(case) for case in cases if case.header.control != "none")


@pytest.mark.parametrize("area", AREAS)
def test_area_has_enough_cases(cases, area):
    assert count(cases)[area] >= AREAS[area]


def test_there_are_enough_cases_in_all(cases):
    numbers = count(cases)
    benign = [case for case in cases if case.benign]
    attacks = sum(numbers.values()) - numbers["kernel"] - len(benign)
    print({**numbers, "attacks": attacks, "benign": len(benign)})
    assert (attacks >= 200, numbers["kernel"] >= 60, len(benign) >= 100) == (True,) * 3


def test_no_idea_has_more_than_five_cases(cases):
    ideas = Counter(case.header.idea for case in cases if not case.benign)
    assert {idea: n for idea, n in ideas.items() if n > 5} == {}


def test_every_published_escape_has_a_case(cases):
    assert ADVISORIES <= {case.header.source for case in cases}


def test_codes_and_levels_of_headers_exist(cases):
    codes = {case.header.code for case in cases} - {""}
    levels = {case.header.level for case in cases} - {""}
    assert codes <= set(load_codebook())
    assert levels <= set(level_names())


def test_folder_says_benign_when_the_header_does(cases):
    assert all(case.benign == area_of(case).startswith("benign") for case in cases)


def test_half_of_the_language_attacks_use_what_they_get_hold_of(cases):
    own = [case for case in cases if area_of(case) == "language"]
    outside = [case for case in own if case.header.goal is Goal.OUTSIDE]
    assert 2 * len(outside) >= len(own)


def test_names_of_kinds_fit_their_areas(cases):
    kinds = {"validator": {Kind.VALIDATOR}, "submission": {Kind.CHECK}}
    for case in cases:
        assert case.header.run in kinds.get(area_of(case), set(Kind)), case.name
