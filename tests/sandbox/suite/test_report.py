import json

from stoilo.sandbox.suite.case import Case, Header
from stoilo.sandbox.suite.report import (
    CaseReport,
    Result,
    Step,
    render_json,
    render_text,
)

HELD = Step("every layer", "pure", "stopped", "refused", held=True)
LEFT_OUT = Step("control", "", "", "not run here", held=True, counted=False)
BROKEN = Step("every layer", "pure", "stopped", "ok \x1b[2J", held=False)
THROUGH = Step("kernel alone", "pure", "nothing", "ok", held=False, reached=True)
NO_CONTROL = Step("control", "", "reaches", "nothing", held=False)


def report(*steps):
    return CaseReport(Case("area/name", Header(idea="an idea"), b""), steps, 0.5)


def test_worst_step_decides():
    assert report(HELD).result is Result.AS_EXPECTED
    assert report(NO_CONTROL, HELD).result is Result.NO_CONTROL
    assert report(NO_CONTROL, BROKEN).result is Result.OTHERWISE
    assert report(BROKEN, THROUGH).result is Result.REACHED


def test_control_that_was_left_out_does_not_count():
    assert not report(LEFT_OUT, HELD).counted
    assert report(HELD).counted


def test_text_shows_what_went_otherwise_without_control_characters():
    text = render_text([report(HELD), report(HELD, BROKEN)])
    assert "area/name (an idea)" in text
    assert "\x1b" not in text
    assert text.endswith("control that reached nothing")
    assert text.count("area/name") == 1


def test_json_holds_every_step_and_the_numbers():
    shown = json.loads(render_json([report(HELD), report(THROUGH)]))
    assert shown["summary"] == {
        "cases": 2,
        "as_expected": 1,
        "reached": 1,
        "otherwise": 0,
        "no_control": 0,
    }
    assert shown["cases"][1]["steps"][0]["reached"] is True
