import ast

import pytest

from stoilo.core.types import Severity
from stoilo.policies.entry import (
    find_entry_problems,
    find_main_block,
    find_missing,
    find_repeated_definitions,
    last_function,
)
from stoilo.policies.findings import Lines


def problems(text: str, entry: str = "") -> list[str]:
    findings = find_entry_problems(ast.parse(text), Lines(text), entry)
    return [finding.code for finding in findings]


def test_last_def_in_the_module_body_is_the_entry() -> None:
    text = "def a(d): pass\ndef b(d):\n def c(): pass\nclass D:\n def e(self): pass\n"
    assert last_function(ast.parse(text)) == "b"


@pytest.mark.parametrize(
    "text", ["", "x = 1", "class A:\n def f(self): pass", "if 1:\n def f(d): pass"]
)
def test_module_without_def_is_a_finding(text: str) -> None:
    assert problems(text) == ["STO-P030"]


@pytest.mark.parametrize("entry", ["b", "A.f", "__init__", ""])
def test_entry_that_is_not_in_the_body_is_a_finding(entry: str) -> None:
    assert problems("def a(d): pass", entry) == (["STO-P030"] if entry else [])


@pytest.mark.parametrize(
    "text",
    [
        "def f(d): pass",
        "def f(d, /): pass",
        "def f(d, x=1): pass",
        "def f(*a): pass",
        "def f(d=1): pass",
        "def f(d, *, k=1, **kw): pass",
        "@decorated\ndef f(): pass",
    ],
)
def test_entry_callable_with_one_dict_passes(text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize(
    "arguments", ["", "a, b", "*, k", "**kw", "d, *, k", "a, b, /", "k=1, *, z"]
)
def test_entry_not_callable_with_one_dict_is_a_finding(arguments: str) -> None:
    assert problems(f"def f({arguments}): pass") == ["STO-P032"]


def test_named_entry_may_be_an_assigned_callable() -> None:
    assert problems("f = lambda d: d\ndef g(d): pass", "f") == []


@pytest.mark.parametrize(
    "again", ["def f(d): return 2", "f = 2", "f: int = 2", "class f: pass"]
)
def test_definition_bound_again_is_a_warning(again: str) -> None:
    text = f"x = 1\ndef f(d): return 1\n{again}\nx = 2\n"
    (finding,) = find_repeated_definitions(ast.parse(text), Lines(text))
    place = (finding.code, finding.severity, finding.line)
    assert place == ("STO-P034", Severity.WARNING, 3)


def test_names_bound_once_or_by_assignment_pass() -> None:
    text = "x = 1\nx = 2\ndef f(d): pass\ndef _(): pass\ndef _(): pass\n"
    assert find_repeated_definitions(ast.parse(text), Lines(text)) == []


@pytest.mark.parametrize("test", ['__name__ == "__main__"', "'__main__' == __name__"])
def test_script_block_is_a_finding_that_names_the_client(test: str) -> None:
    text = f"def f(d): pass\nif {test}:\n    f(1)\n"
    (finding,) = find_main_block(ast.parse(text), Lines(text))
    assert (finding.code, finding.line) == ("STO-P033", 2)
    assert "client" in finding.hint


def test_other_conditions_are_no_script_block() -> None:
    text = "if x == '__main__': pass\nif __name__ == 'a': pass"
    assert find_main_block(ast.parse(text), Lines(text)) == []


def test_missing_validator_functions_are_named() -> None:
    tree = ast.parse("def valid(x): return True")
    assert [found.code for found in find_missing(tree, ("valid", "same"))] == [
        "STO-P030"
    ]


@pytest.mark.parametrize(
    "body", ["yield 1", "x = yield", "yield from d", "return (yield)"]
)
def test_entry_that_yields_and_takes_no_state_is_reported(body: str) -> None:
    assert problems(f"def f(d):\n    {body}") == ["STO-P032"]
    for arguments in ("d, state=None", "d, *, state=None", "d, **more"):
        assert problems(f"def f({arguments}):\n    {body}") == []


@pytest.mark.parametrize(
    "body",
    [
        "def g():\n        yield 1\n    return list(g())",
        "return [x for x in d]",
        "g = lambda: (yield)\n    return 1",
        "class C:\n        def g(self):\n            yield 1",
    ],
)
def test_yield_of_another_function_is_not_the_entrys(body: str) -> None:
    assert problems(f"def f(d):\n    {body}") == []
