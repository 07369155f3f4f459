"""No task code runs while C holds the address of a buffer; each with a control."""

import subprocess
import sys
from array import array
from types import FunctionType

import pytest

from stoilo.sandbox.language.hardening import converts, exact_index

PRELUDE = """
import sys
from array import array
from stoilo.sandbox.language.hardening import seal_stores, seal_text
if sys.argv[1] == "sealed":
    seal_text()
    seal_stores()
SIZE = 384
class Hostile:
    def __init__(self, value, again=b""):
        self.value, self.again = value, again
    def __index__(self):
        data.clear()
        self.freed = bytearray(b"m" * SIZE)
        data.extend(self.again)
        return self.value
class Length(str):
    def __len__(self):
        Hostile.__index__(self)
        return 1
    value, again = 1, b""
class Text:
    value, again = 1, b""
    def __repr__(self):
        Hostile.__index__(self)
        return "!"
data = bytearray(b"q" * SIZE)
again = bytes(SIZE)
"""

ATTACKS = {
    "store": "v = Hostile(65, again); data[8] = v; print(v.freed != b'm' * SIZE)",
    "key": "v = Hostile(8, again); data[v] = 65; print(v.freed != b'm' * SIZE)",
    "steps": "v = Hostile(8, again); data[0:v:2] = b'AAAA'; print(v.freed != b'm' * SIZE)",
    "find": "print(data.find(Hostile(109)) >= 0)",
    "contains": "print(Hostile(109) in data)",
    "hex": "print('6d' in data.hex(Length(':')))",
    "percent": "data[:2] = b'%r'; print(b'mm' in data % Text())",
}
"""What reads or writes freed memory in CPython as it is; each says whether it did."""


def attack(name, sealing):
    command = [sys.executable, "-c", PRELUDE + ATTACKS[name], sealing]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


@pytest.mark.parametrize("name", ATTACKS)
def test_freed_memory_is_neither_read_nor_written(name):
    assert attack(name, "sealed") == "False"


@pytest.mark.parametrize("name", ATTACKS)
def test_control_freed_memory_is_reached_where_nothing_is_sealed(name):
    assert attack(name, "open") == "True"


HONEST = """
import sys
from array import array
from fractions import Fraction
from stoilo.sandbox.language.hardening import seal_stores, seal_text
if sys.argv[1] == "sealed":
    seal_text()
    seal_stores()
class Both:
    def __index__(self): return 7
    def __float__(self): return 2.5
class Whole(int): pass
def tried(work):
    try:
        return work()
    except Exception as error:
        return type(error).__name__
ba = bytearray(b"abcabcabc")
doubles, bytes_, texts = array("d", [1, 2, 3]), array("B", [1, 2, 3]), array("u", "abc")
def store(target, key, value):
    target[key] = value
    return target[:]
def cut(target, key):
    del target[key]
    return target[:]
for key in (0, -1, Both(), Whole(1), True, slice(0, 2), slice(0, Both(), 2), 99, "x", 1.5):
    for value in (5, 300, -1, Both(), Whole(9), 1.5, Fraction(1, 2), b"xy", [1, 2], "x", None):
        for one in (ba, doubles, bytes_, texts):
            print(key.__class__, value.__class__, tried(lambda: store(one[:], key, value)))
    print(tried(lambda: cut(ba[:], key)))
for name in ("find", "rfind", "index", "count", "startswith", "endswith", "__contains__"):
    for what in (b"bc", 98, Both(), b"", memoryview(b"ca"), "x", (b"a", b"b"), None):
        print(name, tried(lambda: getattr(ba, name)(what)))
        print(name, tried(lambda: getattr(ba, name)(what, Both(), None)))
numbers = (3, 2.5, Both(), Whole(4), Fraction(1, 4), "x", b"1", [1, 2.0], range(3))
for value in (*numbers, (x for x in (1, 2)), doubles):
    for one in (doubles, bytes_, texts):
        for name in ("append", "extend", "fromlist"):
            new = one[:]
            print(name, tried(lambda: getattr(new, name)(value)), new)
        print(tried(lambda: one[:].insert(Both(), value)))
separators = ("ab",), ("",), (3,), (None,), (":", Both())
for arguments in ((), (":",), (b"-", 2), (":", -2), *separators):
    for one in (ba, memoryview(ba)):
        print(arguments[:1], tried(lambda: one.hex(*arguments)))
print(ba.hex(sep=":", bytes_per_sep=2), bytearray(b"-").join([b"a", ba]))
print(bytearray(b"%d-%r") % (3, Whole(1)), tried(lambda: bytearray(b"%(a)d") % {b"a": 4}))
print(tried(lambda: ba % 5), tried(lambda: ba.join(3)))
"""


def test_honest_use_means_what_it_meant():
    """Every store and call with every kind of argument, sealed beside CPython's own."""
    run = [sys.executable, "-c", HONEST]
    sealed, plain = (
        subprocess.run([*run, how], capture_output=True, text=True, check=True).stdout
        for how in ("sealed", "open")
    )
    assert sealed.splitlines() == plain.splitlines()
    assert len(plain.splitlines()) > 600


def class_body(statement):
    """Return the function that a class statement compiles to."""
    code = compile(f"class Own:\n    {statement}", "<task>", "exec").co_consts[0]
    return FunctionType(code, {})


PLAIN = class_body("x = 1")
CONVERTING = (
    "def __index__(self): ...",
    "__float__ = helper",
    "from m import f as __int__",
)


@pytest.mark.parametrize("statement", CONVERTING)
def test_class_that_defines_a_conversion_is_seen_before_it_is_built(statement):
    assert converts(class_body(statement), ())
    assert not converts(PLAIN, (int, float))


def test_class_that_inherits_a_conversion_of_a_library_is_seen(runtimes):
    fraction = runtimes["pure"].facades.modules["fractions"].Fraction
    assert converts(PLAIN, (fraction,))


def test_exact_index_leaves_no_subclass():
    class Own(int):
        pass

    assert type(exact_index(Own(4))) is int
    assert exact_index(slice(Own(1), None, Own(2))) == slice(1, None, 2)
    assert exact_index(array("B")) == array("B")
