from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError
from stoilo.core.types import Severity, Verdict
from stoilo.policies.gate import GateRequest, engine_digest, judge, verdict_key
from stoilo.policies.levels import level_names
from stoilo.policies.policy import Policy, default_policy, parse_policy

PURE = b"import math\ndef task(kwargs):\n    return math.sin(kwargs['x'])\n"
NUMERIC = b"import numpy as np\ndef task(kwargs):\n    return np.zeros(3)\n"
HOSTILE = b"import os\ndef task(kwargs):\n    return os.system('id')\n"


def codes(verdict: Verdict) -> list[str]:
    return [finding.code for finding in verdict.findings]


def policy_with(text: str) -> Policy:
    base = default_policy().text.decode()
    head, _, _ = base.partition("[deny]")
    return parse_policy((head + text).encode())


def test_plain_source_is_admitted_at_the_lowest_level() -> None:
    verdict = judge(GateRequest(PURE))
    assert (verdict.admitted, verdict.level, verdict.lowest_level) == (
        True,
        "pure",
        "pure",
    )
    assert verdict.source_digest == content_digest(PURE)
    assert verdict.policy_digest == default_policy().digest
    assert verdict.engine_digest == engine_digest()


def test_arrays_raise_the_level() -> None:
    assert judge(GateRequest(NUMERIC)).level == "numeric"


def test_level_may_only_raise() -> None:
    raised = judge(GateRequest(PURE, level="numeric"))
    assert (raised.admitted, raised.level, raised.lowest_level) == (
        True,
        "numeric",
        "pure",
    )
    lowered = judge(GateRequest(NUMERIC, level="pure"))
    assert (lowered.admitted, lowered.level, lowered.lowest_level) == (
        False,
        "pure",
        "numeric",
    )


def test_unknown_level_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="STO-P002"):
        judge(GateRequest(PURE, level="root"))


def test_hostile_source_is_refused_at_every_level() -> None:
    verdict = judge(GateRequest(HOSTILE))
    assert (verdict.admitted, verdict.lowest_level) == (False, "")
    assert "STO-P040" in codes(verdict)


def test_array_arguments_raise_the_level() -> None:
    verdict = judge(GateRequest(PURE, argument_types=("numpy.ndarray",)))
    assert (verdict.admitted, verdict.level) == (True, "numeric")
    lowered = GateRequest(PURE, level="pure", argument_types=("numpy.ndarray",))
    assert codes(judge(lowered)) == ["STO-P053"]


def test_validators_are_judged_like_the_task() -> None:
    verdict = judge(GateRequest(PURE, validator=HOSTILE))
    assert not verdict.admitted
    assert all(one.message.startswith("in the validators") for one in verdict.findings)


def test_level_admits_both_modules() -> None:
    request = GateRequest(PURE, validator=NUMERIC, validator_entries=("task",))
    assert judge(request).level == "numeric"
    missing = replace(request, validator_entries=("compare",))
    assert codes(judge(missing)) == ["STO-P030"]


def test_closed_level_is_not_chosen() -> None:
    policy = policy_with("")
    closed = parse_policy(policy.text.replace(b"[levels.pure]", b"[levels.other]"))
    verdict = judge(GateRequest(PURE, policy=closed))
    assert (verdict.level, verdict.lowest_level) == ("numeric", "numeric")
    asked = judge(GateRequest(PURE, policy=closed, level="pure"))
    assert (asked.admitted, codes(asked)) == (False, ["STO-P050"])


def test_policy_without_levels_admits_nothing() -> None:
    policy = parse_policy(b'format = 1\nname = "shut"')
    verdict = judge(GateRequest(PURE, policy=policy))
    assert (verdict.admitted, codes(verdict)) == (False, ["STO-P050"])


def test_denied_source_is_refused() -> None:
    policy = policy_with(f'[deny]\ndigests = ["{content_digest(PURE)}"]')
    assert codes(judge(GateRequest(PURE, policy=policy))) == ["STO-P051"]
    assert judge(GateRequest(PURE + b"#", policy=policy)).admitted


def test_denied_module_is_refused_however_it_is_reached() -> None:
    policy = policy_with('[deny]\nmodules = ["math"]')
    assert "STO-P051" in codes(judge(GateRequest(PURE, policy=policy)))
    other = b"from math import sin\ndef f(d): return sin(d['x'])"
    assert "STO-P051" in codes(judge(GateRequest(other, policy=policy)))


def test_policy_limits_only_lower() -> None:
    small = policy_with("[limits]\nsource_bytes = 10")
    assert codes(judge(GateRequest(PURE, policy=small))) == ["STO-P010"]
    large = policy_with("[limits]\nsource_bytes = 999999999\nast_nodes = 999999999")
    bulk = b"x = [" + b"1,\n" * 60_000 + b"]\ndef f(d): return 1"
    assert codes(judge(GateRequest(bulk, policy=large))) == ["STO-P010"]


def test_warning_does_not_refuse() -> None:
    verdict = judge(GateRequest(b"def f(d): return 1\ndef f(d): return 2\n"))
    assert verdict.admitted
    assert [one.severity for one in verdict.findings] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"from math import *", "STO-P042"),
        (b"from os import path", "STO-P040"),
        (b"from math import (\n  sin,\n  secret)", "STO-P040"),
        (b"from .a import b", "STO-P042"),
        (b"import os.path", "STO-P040"),
    ],
)
def test_import_is_refused_once(line: bytes, code: str) -> None:
    verdict = judge(GateRequest(b"def f(d): return 1\n" + line + b"\n"))
    assert codes(verdict) == [code]


def test_nested_finally_is_refused_once() -> None:
    body = b"".join(b" " * depth + b"try:\n" for depth in range(5)) + b"     pass\n"
    tail = b"".join(b" " * depth + b"finally: pass\n" for depth in reversed(range(5)))
    source = b"def f(d): pass\n" + body + tail
    assert codes(judge(GateRequest(source))) == ["STO-P027"]


def test_language_findings_count_columns_in_characters() -> None:
    verdict = judge(GateRequest("def f(d): return 'é', d.__reduce__\n".encode()))
    assert [one.column for one in verdict.findings] == [23]


@pytest.mark.parametrize(
    "source",
    [
        b"def f(d:",
        b"def f(d): return 1 if",
        b"print 'x'",
        b"def f(d):\n\treturn 1\n        return 2",
        b"x = 1\n  y = 2",
        b"f'{'",
        b"'unterminated",
        b"def f(d): return " + b"9" * 5000,
        b"x = (" + b"1," * 3 + b"\n" * 3,
    ],
)
def test_syntax_error_is_a_finding_with_a_place(source: bytes) -> None:
    verdict = judge(GateRequest(source))
    (finding,) = verdict.findings
    assert finding.code == "STO-P023"
    assert finding.line >= 1
    assert finding.column >= 1


@pytest.mark.parametrize(
    "source",
    [
        b"x = " + b"-" * 9000 + b"1",
        b"x = " + b"not " * 2400 + b"1",
        b"\n".join(b"x = " + b"a." * 4990 + b"a" for _ in range(20)),
        b"x = " + b"+".join([b"1"] * 4900),
        b"x = " + b"lambda:" * 1400 + b"1",
        b"if 1: pass\n" + b"elif 1: pass\n" * 15_000,
        b"\n".join(b" " * level + b"if 1:" for level in range(99)) + b" pass",
        b"f'" + b"{" * 5000 + b"'",
        b"x = " + b"f'{" * 100 + b"1" + b"}'" * 100,
        b"a" + b"[0]" * 3000,
        b"a" + b"()" * 4000,
        b"@a\n" * 60_000 + b"def f(d): pass",
        b"def f(" + b"a=" * 4000 + b"1): pass",
        b"match x:\n case " + b"[" * 45 + b"]" * 45 + b": pass",
        b"try: pass\n" + b"except x: pass\n" * 9000,
        b"x" * 9999 + b"=1",
        b";".join([b"x"] * 4999),
        b"global " + b",".join(b"a%d" % i for i in range(1000)),
    ],
)
def test_parser_bomb_ends_in_a_verdict(source: bytes) -> None:
    assert not judge(GateRequest(source)).admitted


seeds = st.sampled_from([PURE, NUMERIC, HOSTILE, b"def f(d): return 1\n"])
snippets = st.sampled_from(
    [
        b"import math\n",
        b"import numpy\n",
        b"from random import random\n",
        b"x = 9 ** 9\n",
        b"class A:\n    pass\n",
        b"def g(d):\n    return [i for i in d]\n",
        b"def h(d):\n    return d.__reduce__\n",
        "\u03b1 = 1\n".encode(),
        b"if __name__ == '__main__': pass\n",
        b"from os import path\n",
    ]
)
sources = st.one_of(
    st.binary(max_size=120),
    st.lists(snippets, max_size=5).map(b"".join),
    st.tuples(st.lists(snippets, max_size=3).map(b"".join), st.binary(max_size=9)).map(
        b"".join
    ),
)


@given(sources)
@settings(deadline=None)
def test_any_bytes_end_in_the_same_verdict_twice(source: bytes) -> None:
    verdict = judge(GateRequest(source))
    assert verdict == judge(GateRequest(source))
    assert verdict.admitted == all(
        one.severity is not Severity.ERROR for one in verdict.findings
    )
    assert not verdict.admitted or verdict.lowest_level in level_names()


@given(sources, st.sampled_from(["math", "numpy", "random", "json"]))
@settings(deadline=None)
def test_a_further_denial_never_admits_more(source: bytes, module: str) -> None:
    digest = content_digest(source)
    for rule in (f'modules = ["{module}"]', f'digests = ["{digest}"]'):
        policy = policy_with(f"[deny]\n{rule}")
        narrowed = judge(GateRequest(source, policy=policy))
        assert narrowed.admitted <= judge(GateRequest(source)).admitted


rules = st.sampled_from(
    [
        "[limits]\nsource_bytes = 60",
        "[limits]\nast_nodes = 9",
        '[deny]\nmodules = ["math"]\n[limits]\nast_nodes = 40',
        "[deny]\n",
    ]
)


@given(sources, rules, st.sampled_from(["pure", "numeric"]))
@settings(deadline=None)
def test_a_narrower_policy_never_admits_more(
    source: bytes, rule: str, closed: str
) -> None:
    base = policy_with("")
    policies = [
        policy_with(rule),
        parse_policy(base.text.replace(f"[levels.{closed}]".encode(), b"[levels.x]")),
    ]
    for policy in policies:
        narrowed = judge(GateRequest(source, policy=policy))
        assert narrowed.admitted <= judge(GateRequest(source)).admitted


@given(sources)
@settings(deadline=None)
def test_higher_level_never_refuses_what_a_lower_one_admits(source: bytes) -> None:
    admitted = [
        judge(GateRequest(source, level=name)).admitted for name in level_names()
    ]
    assert admitted == sorted(admitted)


@given(sources, sources)
def test_verdict_key_is_stable_and_tells_requests_apart(a: bytes, b: bytes) -> None:
    assert verdict_key(GateRequest(a)) == verdict_key(GateRequest(a))
    if a != b:
        assert verdict_key(GateRequest(a)) != verdict_key(GateRequest(b))
        assert verdict_key(GateRequest(a, validator=b)) != verdict_key(
            GateRequest(b, validator=a)
        )


def test_verdict_key_depends_on_everything_asked() -> None:
    base = GateRequest(PURE)
    others = [
        replace(base, validator=b""),
        replace(base, entry="task"),
        replace(base, level="pure"),
        replace(base, policy=policy_with("")),
        replace(base, validator_entries=("a",)),
        replace(base, argument_types=("a",)),
    ]
    assert len({verdict_key(one) for one in [base, *others]}) == 7
