"""sympy: research programs give plain CPython's very answer, attacks are stopped."""

import pytest

from stoilo.core.types import RunStatus
from tests.support.libraries import (
    assert_stopped,
    check_program,
    programs_of,
    run_jailed,
)

PID = "__import__('os').getpid()"
EVIL = f"""
import sympy
from sympy.abc import x

injected = 0

class Evil(sympy.Function):
    def _pythoncode(self, printer):
        return "{PID}"

class Holder:
    @staticmethod
    def _sanitize(a, b):
        return "private"

class Handler:
    def _secret(self, assumptions):
        return True

class Print(sympy.Function):
    file, format_string, print_args = sympy.Symbol("{{fmt.format}}"), x, ()

class Anything:
    ex = 5

def swap(tokens, local, names):
    return [(1, "{PID}")]
"""
ATTACKS = {
    "evaluates text": f'return int(sympy.sympify("{PID}"))',
    "evaluates text by S": f'return int(sympy.S("{PID}"))',
    "evaluates text in solve": (
        f'return sympy.solve("x - {PID}", x)[0] > 0 and str(sympy.solve("x - {PID}", x))'
    ),
    "evaluates text unevaluated": (
        "return str(sympy.parse_expr('().__class__.__base__.__name__'))"
    ),
    "evaluates what a transformation made": (
        "from sympy.parsing.sympy_parser import parse_expr\n"
        "    return parse_expr('1', transformations=(swap,))"
    ),
    "reads a private name in text": "return str(sympy.sympify('sin.__module__'))",
    "compiles text as a function": f'return sympy.lambdify([], "{PID}")()',
    "calls a builtin from a function": (
        "return len(sympy.lambdify([], sympy.Function('globals')())())"
    ),
    "prints code of its own": "return sympy.lambdify(x, Evil(x), 'math')(1)",
    "takes names from a class": (
        "return sympy.lambdify([], sympy.Function('_sanitize')(1, 2),"
        " [{}, Holder, 'math'])() == 'private'"
    ),
    "names a symbol as code": (
        f'return sympy.lambdify([], sympy.Symbol("{PID}"), "math")()'
    ),
    "writes into the global names": "sympy.var('injected'); return bool(injected)",
    "makes a class with special members": (
        "return len(sympy.Function('f', **{'__reduce__': len}).__name__)"
    ),
    "makes a class of any bases": (
        "return len(sympy.Function('f', (sympy.Symbol,), {}).__name__)"
    ),
    "reads source": "return callable(sympy.Q.even.handler.source)",
    "reads attributes by the name of a class": (
        "p = sympy.Predicate('p', [Handler])\n"
        "    return sympy.ask(p(sympy.Function('_secret')(x))) is True"
    ),
    "imports a handler by name": (
        "p = sympy.Predicate('p', ['os.getcwd'])\n"
        "    try:\n        return sympy.ask(p(x)) is None\n"
        "    except AttributeError:\n        return True"
    ),
    "reads private attributes by the name of a function": (
        "return callable(sympy.memoize_property)"
    ),
    "registers another singleton": "sympy.S.register(Holder); return bool(sympy.S.Holder)",
    "opens a plot": "return callable(sympy.plot)",
    "starts a viewer": "return callable(sympy.preview)",
    "changes the interpreter": "return callable(sympy.init_printing)",
    "takes a method for another object": "return sympy.Add.as_expr(5) == 5",
    "takes a method of an inner class for another object": (
        "return sympy.EX.Expression.as_expr(Anything()) == 5"
    ),
    "reads an address by a name that becomes a template": (
        "return ' at 0x' in sympy.ccode(Print(x))"
    ),
    "probes attributes by text": "return callable(sympy.EPath)",
    "assigns a class's member": "sympy.Symbol.name = 'y'; return True",
    "assigns an instance's member": "p = sympy.Poly(x); p.gens = 1; return p.gens",
}


@pytest.mark.parametrize(("path", "name"), programs_of("sympy"))
def test_program_gives_the_plain_answer(path, name):
    check_program(path, name)


@pytest.mark.parametrize("body", ATTACKS.values(), ids=list(ATTACKS))
def test_attack_is_stopped(body):
    assert_stopped(f"{EVIL}\ndef run(args):\n    {body}", "sympy")


def test_chance_without_a_seed_is_the_same_on_every_copy():
    source = (
        "import sympy\nfrom sympy.combinatorics import Permutation\n"
        "def run(args):\n"
        "    found = sympy.randMatrix(3), Permutation.random(9), sympy.Dummy().dummy_index\n"
        "    return str(found), str(sympy.Point(0, 0)), sympy.randprime(2, 10**6)\n"
    )
    copies = [run_jailed(source, "run", {}, ("sympy",)) for _ in range(2)]
    assert copies[0].status is RunStatus.OK
    assert copies[0].value == copies[1].value


def test_text_that_is_no_expression_is_refused_by_name():
    source = (
        "import sympy\ndef run(args):\n    return str(sympy.sympify('x if y else __a'))"
    )
    assert run_jailed(source, "run", {}, ("sympy",)).status is RunStatus.OK
    bad = source.replace("x if y else __a", "[x async for x in y]")
    assert run_jailed(bad, "run", {}, ("sympy",)).status is not RunStatus.OK
