from __future__ import annotations

import json

from stoilo.cli.main import main

FEW = ["boinc", "simulate", "--hosts", "20", "--tasks", "20"]


def test_simulation_prints_every_policy_beside_arithmetic(capsys):
    assert main(FEW) == 0
    out, err = capsys.readouterr()
    assert out.count("answers per task") == 4
    assert "c·f²·(3-2f)" in out
    assert "quorum 2: 20 of 20 tasks" in err


def test_simulation_prints_one_json_object_without_infinity(capsys):
    assert main([*FEW, "--cheats", "0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=lambda _: 1 / 0)
    assert told["scenario"]["hosts"] == 20
    figures = [figure for one in told["policies"] for figure in one["figures"]]
    assert all(
        one["measured"]["value"] == 0 for one in figures if "wrong" in one["name"]
    )
    assert [one["tasks"] for one in told["policies"]] == [20, 20, 80, 80]


def test_population_without_sense_is_a_usage_error(capsys):
    assert main(["boinc", "simulate", "--hosts", "1"]) == 2
    assert "STO-B051" in capsys.readouterr().err
