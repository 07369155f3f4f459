"""What hostile values and texts may do to the command line: nothing."""

import json

from stoilo.cli.sandbox import render_outcome
from stoilo.core.codec import skeleton
from stoilo.core.types import RunOutcome, RunStatus


def test_value_without_json_form_is_the_tasks_error_not_a_usage_error():
    outcome = RunOutcome(status=RunStatus.OK, value=skeleton.encode(1 << 40_000))
    shown = render_outcome(outcome)
    assert (shown["status"], shown["layer"]) == ("user_error", "result")
    assert (shown["value"], shown["code"]) == (None, "STO-D009")
    json.dumps(shown, allow_nan=False)
