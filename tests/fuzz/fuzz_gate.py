"""Fuzz the gate: `python tests/fuzz/fuzz_gate.py [SECONDS] [SEED]`.

Mutates honest and hostile sources (bytes, tokens, lines, nesting, repetition) and checks
that every input ends in a verdict that is the same twice, has bounded and placed findings,
admits at higher levels what it admits at lower ones, and survives the wire. Prints the
seed and the counts; a source that breaks a promise is printed as a Python literal.
"""

import itertools
import random
import sys

from stoilo.core.types import Severity
from stoilo.policies.findings import FINDINGS_SHOWN
from stoilo.policies.gate import GateRequest, judge
from stoilo.policies.levels import level_names
from stoilo.policies.render import render_text
from stoilo.policies.wire import answer_requests, parse_answer, render_requests
from tests.support.turns import turns_within

CORPUS = [
    b"import math\ndef task(kwargs):\n    return math.sin(kwargs['x'])\n",
    b"import numpy as np\ndef task(d):\n    return np.linalg.solve(d['a'], d['b'])\n",
    b"class P:\n    x: float = 0.0\ndef task(d):\n    return [P().x for i in range(d)]\n",
    b"def task(d):\n    try:\n        return 1\n    finally:\n        pass\n",
    b"def task(d):\n    match d:\n        case {'a': x, **rest}:\n            return x\n",
    b"def task(d):\n    return f'''\n{d.__globals__}\n  {open(1)!r:{d.gi_frame}}'''\n",
    b"def task(d):\n    return (lambda *a, **k: a)(*d, **d)\n",
    b"import os\ndef task(d):\n    return os.system('id').__class__\n",
    "def \u0444(d):\n    \u03b1 = '\u00e9'\n    return \u03b1 * 9 ** 9\n".encode(),
]
FRAGMENTS = [
    *(
        b"(",
        b")",
        b"[",
        b"]",
        b"{",
        b"}",
        b"'",
        b'"',
        b"'''",
        b"\\",
        b"\n",
        b"\t",
        b" ",
    ),
    *(b"\0", b"\r", b"\x0c", b"\xff", b"\xef\xbb\xbf", b"#", b"# coding: utf-7\n"),
    *(
        b"9**9**9",
        b"'a'*10**9",
        b"0x" + b"f" * 99,
        b"-",
        b"not ",
        b"lambda:",
        b"await ",
    ),
    *(b"import os\n", b"from . import x\n", b"from math import *\n", b"__import__"),
    *(
        b".__class__",
        b".__globals__",
        b"yield ",
        b"async ",
        b"global x\n",
        b":=",
        b"f'{",
    ),
    *(b"if __name__ == '__main__':\n", b"try:\n", b"finally:\n", b"class A:\n", b"@"),
    *(
        "\u202e".encode(),
        "\u200b".encode(),
        "\u0430".encode(),
        "\ufb01".encode(),
        b"\xed\xa0\x80",
    ),
]


def mutate(chooser, data):
    mutant = bytearray(data)
    for _ in range(chooser.randint(1, 5)):
        at = chooser.randrange(len(mutant) + 1)
        match chooser.randrange(6):
            case 0:
                mutant[at : at + 1] = bytes([chooser.randrange(256)])
            case 1:
                mutant[at:at] = chooser.choice(FRAGMENTS)
            case 2:
                mutant[at:at] = chooser.choice(FRAGMENTS) * chooser.choice(
                    [3, 60, 2000]
                )
            case 3:
                del mutant[at : at + chooser.randrange(1, 20)]
            case 4:
                other = chooser.choice(CORPUS)
                mutant[at:at] = other[chooser.randrange(len(other)) :]
            case 5:
                lines = bytes(mutant).split(b"\n")
                chooser.shuffle(lines)
                mutant = bytearray(b"\n".join(lines))
    return bytes(mutant)


def check(source):
    """Assert every promise about `source`; return whether it is admitted."""
    request = GateRequest(source)
    verdict = judge(request)
    assert verdict == judge(request)
    assert parse_answer(answer_requests(render_requests([request])), request) == verdict
    assert len(verdict.findings) <= FINDINGS_SHOWN + 1
    errors = [one for one in verdict.findings if one.severity is Severity.ERROR]
    assert verdict.admitted == (not errors)
    for one in verdict.findings:
        assert (one.line, one.column) >= (1, 1)
        assert (one.line, one.column) <= (one.end_line, one.end_column), one
        assert one.hint
    shown = render_text(verdict, source, "task.py")
    assert all(char.isprintable() or char == "\n" for char in shown)
    answers = [
        judge(GateRequest(source, level=name)).admitted for name in level_names()
    ]
    assert all(low <= high for low, high in itertools.pairwise(answers))
    return verdict.admitted


def fuzz(turns, seed):
    """Return (admitted, refused) counts after one program for each of `turns`."""
    chooser = random.Random(seed)
    counts = {True: 0, False: 0}
    for _ in turns:
        source = mutate(chooser, chooser.choice(CORPUS))
        try:
            counts[check(source)] += 1
        except BaseException:
            print(f"seed {seed}: {source!r}", file=sys.stderr)
            raise
    return counts[True], counts[False]


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    admitted, refused = fuzz(turns_within(seconds), seed)
    print(f"seed {seed}: {admitted} admitted, {refused} refused")
