"""SARIF: what the specification asks of our part of it, checked against our own table."""

import json
from typing import Any

import pytest

from stoilo.core.types import Severity, Verdict
from stoilo.policies.findings import FIRST_PLACE, Place, make_finding
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.render import render_sarif

HOSTILE = (
    "import os, socket\nfrom os import *\ndef task(d):\n    return os.system('{0}')\n"
)

# object → (properties it must have, properties it may have); SARIF's objects are closed.
MESSAGE = ({"text"}, {"markdown", "id", "arguments", "properties"})
SHAPES: dict[str, tuple[set[str], set[str]]] = {
    "log": ({"version", "runs"}, {"$schema", "properties"}),
    "run": (
        {"tool"},
        {"invocations", "artifacts", "results", "columnKind", "properties"},
    ),
    "driver": ({"name"}, {"version", "rules", "informationUri"}),
    "rule": ({"id"}, {"shortDescription", "fullDescription", "help", "name"}),
    "invocation": ({"executionSuccessful"}, {"exitCode"}),
    "artifact": (set(), {"location", "length", "hashes", "sourceLanguage"}),
    "result": (
        {"message"},
        {"ruleId", "ruleIndex", "level", "locations", "partialFingerprints"}
        | {"properties"},
    ),
    "region": (set(), {"startLine", "startColumn", "endLine", "endColumn"}),
}


def check(kind: str, thing: dict[str, Any]) -> dict[str, Any]:
    must, may = SHAPES[kind]
    assert must <= set(thing) <= must | may, kind
    return thing


def check_log(text: str) -> dict[str, Any]:
    """Return the one run of a log that is as the specification says."""
    log = check("log", json.loads(text))
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    check("run", run)
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    driver = check("driver", run["tool"]["driver"])
    rules = [check("rule", rule)["id"] for rule in driver["rules"]]
    assert len(set(rules)) == len(rules)
    for one in run["invocations"]:
        check("invocation", one)
    for one in run["artifacts"]:
        check("artifact", one)
    for result in run["results"]:
        check_result(result, rules)
    return run


def check_result(result: dict[str, Any], rules: list[str]) -> None:
    check("result", result)
    assert rules[result["ruleIndex"]] == result["ruleId"]
    assert result["level"] in {"none", "note", "warning", "error"}
    assert set(result["message"]) <= MESSAGE[0] | MESSAGE[1]
    assert result["message"]["text"]
    [location] = result["locations"]
    region = check("region", location["physicalLocation"]["region"])
    assert all(number >= 1 for number in region.values())
    start = region["startLine"], region["startColumn"]
    assert start <= (region["endLine"], region["endColumn"])


def sarif(source: str, **fields: Any) -> dict[str, Any]:
    data = source.encode()
    verdict = judge(GateRequest(data, level="pure", **fields))
    return check_log(render_sarif(verdict, data, "task.py"))


def text_of(message: str, hint: str = "") -> str:
    verdict = Verdict(
        admitted=True,
        level="pure",
        lowest_level="pure",
        policy_digest="",
        source_digest="",
        findings=(
            make_finding("STO-P055", FIRST_PLACE, message, hint, Severity.WARNING),
        ),
    )
    [result] = check_log(render_sarif(verdict, b"", "-"))["results"]
    return str(result["message"]["text"])


def test_every_finding_is_one_result() -> None:
    verdict = judge(GateRequest(HOSTILE.encode(), level="pure"))
    run = sarif(HOSTILE)
    assert [one["ruleId"] for one in run["results"]] == [
        found.code for found in verdict.findings
    ]
    assert len(verdict.findings) >= 2
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 3}]


def test_admitted_source_has_no_result_and_exit_0() -> None:
    run = sarif("def task(d):\n    return 1\n")
    assert (run["results"], run["invocations"][0]["exitCode"]) == ([], 0)
    assert run["properties"]["lowestLevel"] == "pure"


def test_columns_count_characters() -> None:
    run = sarif("def task(d):\n    '\u03b1' and os.x\n    import os\n    return os\n")
    [region] = [
        one["locations"][0]["physicalLocation"]["region"]
        for one in run["results"]
        if one["ruleId"] == "STO-P040"
    ]
    assert (region["startLine"], region["startColumn"]) == (3, 12)
    assert run["columnKind"] == "unicodeCodePoints"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a {0} b", "a {{0}} b"),
        ("see [me](http://evil)", r"see \[me](http://evil)"),
        ("x[0] is fine", "x[0] is fine"),
        ("hidden \u202e text", "hidden \\u202e text"),
        ("", "-"),
    ],
)
def test_hostile_text_stays_plain_text(said: str, shown: str) -> None:
    assert text_of(said) == shown


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("a b.py", "a%20b.py"),
        ("-", "stdin"),
        ("c:d/e.py", "c%3Ad/e.py"),
        ("/x/y.py", "file:///x/y.py"),
        ("bad\udcff.py", "bad%FF.py"),
    ],
)
def test_file_name_becomes_a_uri(name: str, uri: str) -> None:
    verdict = judge(GateRequest(b"x = 1\n", level="pure"))
    run = check_log(render_sarif(verdict, b"x = 1\n", name))
    assert run["artifacts"][0]["location"]["uri"] == uri


def test_fingerprint_survives_lines_added_above() -> None:
    def prints(source: str) -> list[Any]:
        return [one["partialFingerprints"] for one in sarif(source)["results"]]

    assert prints(HOSTILE) == prints("# more\n\n" + HOSTILE)
    assert prints(HOSTILE) != prints(HOSTILE.replace("socket", "ctypes"))


def test_checker_sees_what_the_specification_forbids() -> None:
    """The negative control of every test above."""
    log = json.loads(render_sarif(judge(GateRequest(b"")), b"", "t.py"))
    broken = json.loads(json.dumps(log))
    broken["runs"][0]["results"][0]["severity"] = "error"
    with pytest.raises(AssertionError):
        check_log(json.dumps(broken))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"][
        "startColumn"
    ] = 0
    with pytest.raises(AssertionError):
        check_log(json.dumps(log))


def test_place_and_finding_agree() -> None:
    found = make_finding("STO-P055", Place(2, 3, 2, 5), "m", "h")
    verdict = Verdict(
        admitted=False,
        level="pure",
        lowest_level="",
        policy_digest="p",
        source_digest="s",
        findings=(found,),
    )
    [result] = check_log(render_sarif(verdict, b"", "t"))["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert list(region.values()) == [2, 3, 2, 5]
    assert result["properties"] == {"hint": "h"}
