"""Hypothesis strategies for task sources: ordinary, forbidden and unknown things mixed.

For properties of gate, levels and policies; about a quarter is admitted at some level.
"""

from __future__ import annotations

from hypothesis import strategies as st

from stoilo.core.levels import load_levels

__all__ = ["FOREIGN_MODULES", "LEVEL_MODULES", "expressions", "imports", "sources"]

LEVEL_MODULES = sorted({name for level in load_levels() for name in level.modules})
"""Every module that some level hands out."""

FOREIGN_MODULES = ["os", "socket", "ctypes", "nothing.here", "torch", "numpy.ctypeslib"]
"""Modules that no level hands out, or not by that name."""

ATTRIBUTES = [
    *("x", "real", "T", "_x", "__class__", "tofile", "gi_frame", "append", "mro"),
    *("sum", "shape", "format", "__dict__", "data", "base", "ctypes", "items"),
]
NAMES = ["d", "x", "np", "a", "_a", "total", "__b"]

names = st.sampled_from(NAMES)
literals = st.sampled_from(["1", "'t'", "[1, 2]", "{'k': 1}", "None", "1.5", "b'b'"])


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return larger expressions out of smaller ones."""
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map("({0[0]} + {0[1]})".format),
        pairs.map("{0[0]}[{0[1]}]".format),
        pairs.map("len([{0[0]}, {0[1]}])".format),
        pairs.map("[i for i in {0[0]} if {0[1]}]".format),
        st.tuples(inner, st.sampled_from(ATTRIBUTES)).map("{0[0]}.{0[1]}".format),
        inner.map("f'{{{}}}'".format),
        inner.map("(lambda y: {})".format),
        inner.map("getattr(d, {})".format),
        inner.map("str({})".format),
    )


expressions = st.recursive(names | literals, _grow, max_leaves=6)

_lines = st.one_of(
    st.tuples(names, expressions).map("{0[0]} = {0[1]}".format),
    st.tuples(names, expressions).map("{0[0]} += {0[1]}".format),
    st.tuples(names, expressions).map("{0[0]}.v = {0[1]}".format),
    st.tuples(names, expressions).map("{0[0]}[0] *= {0[1]}".format),
    expressions.map("print({})".format),
    expressions.map("assert {}".format),
    expressions.map("match {}:\n        case [a, *x]: pass".format),
    expressions.map("for x in {}: pass".format),
    expressions.map("with {} as x: pass".format),
    st.just("global total"),
    st.just("await d"),
    st.just("yield d"),
    st.just("try:\n        pass\n    except ValueError as a:\n        pass"),
)


@st.composite
def imports(draw: st.DrawFn) -> str:
    """Return one import, from any level or from none."""
    module = draw(st.sampled_from(LEVEL_MODULES) | st.sampled_from(FOREIGN_MODULES))
    known = [
        name
        for level in load_levels()
        if module in level.modules
        for name in level.modules[module].names
    ]
    form = draw(st.integers(0, 2))
    if form == 0 or not known:
        return f"import {module} as {draw(names)}"
    name = draw(st.sampled_from(known))
    return f"from {module} import {name}" + (" as np" if form == 1 else "")


@st.composite
def sources(draw: st.DrawFn) -> bytes:
    """Return a module with a function of one argument; often admitted, often not."""
    head = draw(st.lists(imports(), max_size=3))
    body = draw(st.lists(_lines, min_size=1, max_size=4))
    more = draw(
        st.sampled_from(
            [
                "",
                "class A:\n    def __init__(self):\n        self._v = 1\n",
                "class B(list):\n    pass\n",
                "import dataclasses\n@dataclasses.dataclass\nclass C:\n    n: int = 1\n",
                "LIMIT = 2 ** 9\n",
            ]
        )
    )
    lines = "".join(f"    {line}\n" for line in body)
    return ("\n".join(head) + f"\n{more}def task(d):\n{lines}    return d\n").encode()
