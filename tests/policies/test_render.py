import json

from msgspec.structs import replace

from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.render import escape, render_json, render_text

KEYS = {
    "verdict",
    "level",
    "lowest_level",
    "policy_digest",
    "source_digest",
    "findings",
}
FINDING_KEYS = {
    "code",
    "severity",
    "line",
    "column",
    "end_line",
    "end_column",
    "message",
    "hint",
}
SOURCE = b"import os\ndef f(d):\n    return 1\n"


def rendered(source: bytes, name: str = "t.py") -> str:
    return render_text(judge(GateRequest(source)), source, name)


def test_json_has_exactly_the_keys_of_the_contract() -> None:
    document = json.loads(render_json(judge(GateRequest(SOURCE))))
    assert set(document) == KEYS
    assert {frozenset(one) for one in document["findings"]} == {frozenset(FINDING_KEYS)}
    assert (document["verdict"], document["lowest_level"]) == ("refused", None)


def test_carets_stand_under_the_finding() -> None:
    lines = rendered(SOURCE).splitlines()
    head = next(
        i for i, line in enumerate(lines) if line.startswith("t.py:1:8: error[")
    )
    quoted, carets = lines[head + 1 : head + 3]
    assert quoted[carets.index("^") : carets.rindex("^") + 1] == "os"


def test_carets_stand_right_after_tabs_and_escapes() -> None:
    source = b"def f(d):\n\tx = '\x1b'; import os\n"
    quoted, carets = rendered(source).splitlines()[1:3]
    assert quoted[carets.index("^") :].startswith("\\u001b")


def test_long_line_is_shown_around_the_finding() -> None:
    source = b"x = '" + b"a" * 5000 + "\u202e".encode() + b"b" * 5000 + b"'"
    lines = rendered(source).splitlines()
    quoted, carets = lines[1:3]
    assert len(quoted) < 130
    assert quoted[carets.index("^") :].startswith("\\u202e")


def test_hostile_text_cannot_drive_the_terminal() -> None:
    text = rendered(b"# \x1b]0;x\x07\r\x9b\nimport \x1b", "a\x1bb.py")
    assert all(char.isprintable() or char == "\n" for char in text)


def test_escape_keeps_letters_of_all_scripts() -> None:
    assert escape("größe\t\u202e\x00") == "größe    \\u202e\\u0000"


def test_sum_tells_which_level_would_admit() -> None:
    verdict = replace(judge(GateRequest(SOURCE)), lowest_level="numeric")
    assert "--level numeric" in render_text(verdict, SOURCE, "t.py")
