"""Each pattern is found where it is planted, and only there."""

import ast
import collections.abc
import functools
import types

import pytest

from stoilo.flavors.describing.source_scan import (
    Finding,
    find_patterns,
    reachable_functions,
    scan_functions,
    settle,
)

PLANTED = {
    "x.__class__(3)": "x.__class__",
    "self.__class__(3)": "self.__class__",
    "type(x)(3)": "type(x)",
    "type(self)": "type(self)",
    "type('N', (), {})": "type(,,)",
    "getattr(x, name)": "getattr()",
    "getattr(x, '__globals__')": "getattr()",
    "setattr(x, name, 1)": "setattr()",
    "text.format(x)": ".format()",
    "'{0.name}'.format(x)": ".format()",
    "text.format_map(x)": ".format_map()",
    "eval(text)": "eval()",
    "exec(text)": "exec()",
    "compile(text, 'a', 'exec')": "compile()",
    "x.__dict__.update(y)": "x.__dict__",
    "vars(x)": "vars()",
    "x.__globals__": "x.__globals__",
    "__import__(name)": "__import__()",
    "self._hidden(x)": "self._hidden()",
    "sys.modules[name]": "sys.modules",
    "sys._getframe(1)": "x._getframe",
}
HARMLESS = [
    *("getattr(x, 'name')", "'{} {a!r:>{b}}'.format(x)", "type", "re.compile(x)"),
    *("x.evaluate(y)", "super().__init__(x)", "type.__new__", "self.hidden(x)"),
]


@pytest.mark.parametrize(("code", "pattern"), PLANTED.items())
def test_planted_pattern_is_found(code, pattern):
    tree = ast.parse(f"def method(self, x):\n    return lambda: {code}").body[0]
    assert set(find_patterns(tree)) == {pattern}


@pytest.mark.parametrize("code", HARMLESS)
def test_what_trusts_nothing_is_not_found(code):
    tree = ast.parse(f"def method(self, x):\n    return {code}").body[0]
    assert list(find_patterns(tree)) == []


def helper(x):
    return eval(x)  # noqa: S307 - planted


def decorated(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


class Kind(type):
    def of(cls, name):
        return getattr(cls, name)


class Base:
    def _trusting(self, x):
        return x.__class__(self)


class Library(Base, metaclass=Kind):
    @property
    def shown(self):
        return vars(self)

    @decorated
    def plain(self, x):
        return helper(x)


def found_in(*values):
    facade = types.ModuleType("facade")
    vars(facade).update({f"name{number}": value for number, value in enumerate(values)})
    classes = [
        cls for value in values if isinstance(value, type) for cls in value.__mro__
    ]
    found = scan_functions(reachable_functions([facade], classes))
    return {item.name.rpartition(f"{__name__}.")[2]: item.patterns for item in found}


def test_helpers_decorated_ones_bases_and_metaclasses_are_read():
    assert found_in(Library) == {
        "Base._trusting": ("x.__class__",),
        "Kind.of": ("getattr()",),
        "Library.shown": ("vars()",),
        "helper": ("eval()",),
    }


def test_bound_methods_and_instances_are_read_too():
    assert "Base._trusting" in found_in(Library()._trusting)
    assert "Library.shown" in found_in(Library())


def test_digest_changes_with_the_code_and_not_with_its_layout(tmp_path):
    digests = []
    texts = ("x.__class__", "x.__class__  # why", "(x.__class__,)")
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.py"
        path.write_text(f"def f(x):\n    'text {number}'\n    return {text}\n")
        space = {"__name__": "planted"}
        exec(compile(path.read_text(), str(path), "exec"), space)  # noqa: S102 - ours
        (finding,) = scan_functions([space["f"]])
        digests.append(finding.digest)
    assert digests[0] == digests[1] != digests[2]


def test_function_without_source_has_to_be_read():
    space = {"__name__": "planted"}
    code = compile("def f(x): return x", "/nowhere/gone.py", "exec")
    exec(code, space)  # noqa: S102 - ours
    assert scan_functions([space["f"]])[0].patterns == ("no source",)


def test_module_that_cpython_freezes_is_read():
    found = scan_functions([collections.abc.Set.__and__])
    assert found[0].patterns == ("self._from_iterable()",)


def test_the_language_layer_settles_receivers_and_private_methods_not_given():
    patterns = ("self.__class__", "self.__dict__", "self._given()", "self._kept()")
    left = settle(Finding("name", patterns, ""), frozenset({"_given"})).patterns
    assert left == ("self.__dict__", "self._given()")
