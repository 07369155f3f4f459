from stoilo.core.levels import load_levels
from stoilo.core.types import Verdict
from stoilo.policies.explanation import (
    SourceExplained,
    explain_source,
    render_source,
)
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.policy import default_policy, parse_policy

NUMERIC = b"import numpy as np\ndef task(d):\n    return np.ones(3)\n"


def explain(source: bytes, policy=None) -> SourceExplained:
    rules = policy or default_policy()

    def judged(level: str) -> Verdict:
        return judge(GateRequest(source, level=level, policy=rules))

    return explain_source(judged, rules, load_levels())


def test_source_is_told_which_level_it_needs_and_why() -> None:
    explained = explain(NUMERIC)
    assert explained.lowest == "numeric"
    pure, numeric = explained.levels[:2]
    assert (pure.admitted, numeric.admitted) == (False, True)
    text = render_source(explained, "task.py")
    assert "admitted from level numeric on" in text
    assert "STO-P040" in text
    assert "why:" in text


def test_policy_that_closes_and_asks_for_review_is_told() -> None:
    rules = parse_policy(
        b"format=1\nname='p'\n[levels.pure]\nopen_to=['*']\nreview='manual'\n"
    )
    text = render_source(explain(NUMERIC, rules), "t.py")
    assert "pure: refused, 1 errors, 0 warnings; open to everybody; a reviewer" in text
    assert "numeric: refused, 1 errors, 0 warnings; closed by the policy" in text


def test_source_that_no_level_admits() -> None:
    explained = explain(b"import os\ndef task(d):\n    return os\n")
    assert explained.lowest == ""
    assert "no level admits it" in render_source(explained, "\x1b[31m.py")
    assert "\x1b" not in render_source(explained, "\x1b[31m.py")
