# ruff: noqa: E501 - one program a line
from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.client.capture.scopes import externals_of, identifiers_of


def names(source: str) -> set[str]:
    node = ast.parse(source).body[0]
    return {external.name for external in externals_of(node)}


CASES = {
    "def f(a):\n    return a + b": {"b"},
    "def f(a, b=c):\n    return a": set(),
    "def f():\n    x = 1\n    def g(y=z):\n        return x + y + w\n    return g": {"z", "w"},
    "def f():\n    return [x for x in xs if x > lim]": {"xs", "lim"},
    "def f():\n    return [y := x for x in xs] + [y]": {"xs"},
    "def f():\n    global g\n    g = 1": {"g"},
    "def f():\n    def h():\n        nonlocal n\n        n = 1\n    return h": {"n"},
    "def f():\n    n = 0\n    def h():\n        nonlocal n\n        n = 1\n    return h": set(),
    "def f():\n    import a.b as c, d.e\n    return c, d": set(),
    "def f(x):\n    try:\n        g(x)\n    except E as e:\n        return e": {"g", "E"},
    "def f(x):\n    match x:\n        case {'a': b, **r}:\n            return b, r\n        case C(d=e) | [*e]:\n            return e": {"C"},
    "class A(B):\n    x = y\n    def m(self):\n        return x, self": {"B", "y", "x"},
    "class A:\n    def m(self):\n        return super().m() + __class__.x": {"super"},
    "def f():\n    class L:\n        v = k\n        def m(self):\n            return v\n    return L": {"k", "v"},
    "def f():\n    with o() as h:\n        del h\n    for i in r:\n        pass\n    return i": {"o", "r"},
    "def f():\n    return lambda a, *b, c=d, **e: (a, b, c, e, g)": {"d", "g"},
    "def f():\n    return {k: v for k, v in zip(ks, [k for k in vs])}": {"zip", "ks", "vs"},
}  # fmt: skip


@pytest.mark.parametrize("source", CASES)
def test_outside_names_are_those_of_pythons_own_rules(source: str) -> None:
    assert names(source) == CASES[source]


def test_names_of_the_class_body_are_immediate_and_of_methods_deferred() -> None:
    node = ast.parse("class A(B):\n    x = y\n    def m(self, p=q):\n        return z")
    deferred = {e.name: e.deferred for e in externals_of(node.body[0])}
    assert deferred == {"B": False, "y": False, "q": False, "z": True}


def _globals_by_symtable(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_global():
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals_by_symtable(child)


_NAME = st.sampled_from("abcd")
_BODY = st.recursive(
    st.one_of(
        _NAME.map(lambda n: [f"{n} = 1"]),
        _NAME.map(lambda n: [f"print({n})"]),
        st.tuples(_NAME, _NAME).map(lambda p: [f"{p[0]} = [{p[1]} for {p[1]} in d]"]),
        st.tuples(_NAME, _NAME).map(lambda p: [f"a = lambda {p[0]}: {p[1]}"]),
    ),
    lambda inner: st.one_of(
        st.tuples(_NAME, _NAME, inner).map(
            lambda t: [f"def {t[0]}({t[1]}):", *(f"    {row}" for row in t[2])]
        ),
        st.tuples(_NAME, inner).map(
            lambda t: [f"class {t[0]}:", *(f"    {row}" for row in t[1])]
        ),
        st.tuples(inner, inner).map(lambda t: [*t[0], *t[1]]),
    ),
    max_leaves=8,
)


@given(_BODY)
def test_agrees_with_the_compilers_symbol_table(body: list[str]) -> None:
    source = "\n".join(["def f(a):", *(f"    {row}" for row in body)])
    table = symtable.symtable(source, "x", "exec").get_children()[0]
    assert names(source) == set(_globals_by_symtable(table))


def test_identifiers_hold_every_name() -> None:
    node = ast.parse("def f(a):\n    import b as c\n    return [d for d in e]")
    assert identifiers_of(node) >= {"f", "a", "c", "d", "e"}
