from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench.simulation.__main__ import simulate

FEW = ["--hosts", "20", "--tasks", "20"]


def run(*words):
    return CliRunner().invoke(simulate, words)


def test_simulation_prints_every_policy_beside_arithmetic():
    done = run(*FEW)
    assert done.exit_code == 0
    assert done.stdout.count("answers per task") == 4
    assert "c·f²·(3-2f)" in done.stdout
    assert "quorum 2: 20 of 20 tasks" in done.stderr


def test_simulation_prints_one_json_object_without_infinity():
    done = run(*FEW, "--cheats", "0", "--json")
    told = json.loads(done.stdout, parse_constant=lambda _: 1 / 0)
    assert told["scenario"]["hosts"] == 20
    figures = [figure for one in told["policies"] for figure in one["figures"]]
    assert all(
        one["measured"]["value"] == 0 for one in figures if "wrong" in one["name"]
    )
    assert [one["tasks"] for one in told["policies"]] == [20, 20, 80, 80]


def test_population_without_sense_is_a_usage_error():
    with pytest.raises(ValueError, match="cannot be simulated"):
        raise run("--hosts", "1").exception
