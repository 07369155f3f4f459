"""mpmath: research programs give plain CPython's very answer, attacks are stopped."""

import pytest

from tests.support.libraries import assert_stopped, check_program, programs_of

FAKE = """
import mpmath

class Fake:
    rows = 0
    ctx = mpmath.mp

class Liar(str):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1
"""
ATTACKS = {
    "evaluates the text of a constant": (
        "return str(mpmath.identify(1.5, ['().__class__.__base__.__name__ and 3'])) or 'x'"
    ),
    "compiles a form of a sum": (
        "try:\n"
        "        text = Liar('Z(a=1/0): pass\\ndef y')\n"
        "        mpmath.mp.hypsum(1, 0, (text,), [1], mpmath.mpf(1))\n"
        "    except ZeroDivisionError:\n"
        "        return True"
    ),
    "reads a clock": "return mpmath.timing(lambda: 1) > 0",
    "draws": "return callable(mpmath.plot)",
    "draws by way of a number": "return callable(mpmath.mpf(1).context.plot)",
    "runs the library's tests": "return callable(mpmath.runtests)",
    "takes a method for another object": (
        "mpmath.mpf(1).context.matrix.column(Fake(), 0); return True"
    ),
    "writes a function of a context": "mpmath.mp.sin = abs; return True",
    "makes a context": "return callable(mpmath.mp.clone)",
}


@pytest.mark.parametrize(("path", "name"), programs_of("mpmath"))
def test_program_gives_the_plain_answer(path, name):
    check_program(path, name)


@pytest.mark.parametrize("body", ATTACKS.values(), ids=list(ATTACKS))
def test_attack_is_stopped(body):
    assert_stopped(f"{FAKE}\ndef run(args):\n    {body}", "mpmath")
