"""Fuzz the skeleton decoder: `python tests/fuzz/fuzz_skeleton.py [SECONDS] [SEED]`.

Mutates valid encodings (flip, cut, splice, length forgery) and checks that every input
ends in a canonical value or in one of our errors. Prints the seed and the counts.
"""

import random
import sys

from stoilo.core.codec.nodes import Instance, Ndarray
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.errors import TrustError
from tests.support.turns import turns_within

CORPUS = [
    encode(node)
    for node in (
        {"a": [1, 2.5, None], "b": (True, b"x", "y" * 40)},
        [Ndarray("float32", (2, 3), bytes(24)), {1, 2, 3}, 2**90],
        Instance("Model", {"w": [0.5] * 9, "n": 3}),
        [[[[[["deep"]]]]]],
    )
]


def mutate(chooser, data):
    mutant = bytearray(data)
    for _ in range(chooser.randint(1, 6)):
        at = chooser.randrange(4, len(mutant))
        match chooser.randrange(4):
            case 0:
                mutant[at] = chooser.randrange(256)
            case 1:
                mutant[at : at + 4] = chooser.choice(
                    [b"\xff" * 4, bytes(4), b"\1\0\0\0"]
                )
            case 2:
                del mutant[at : at + chooser.randrange(1, 9)]
            case 3:
                other = chooser.choice(CORPUS)
                mutant[at:at] = other[4 : 4 + chooser.randrange(1, 40)]
        if len(mutant) < 6:
            return bytes(data)
    return bytes(mutant)


def fuzz(turns, seed):
    chooser = random.Random(seed)
    accepted = refused = 0
    for _ in turns:
        data = mutate(chooser, chooser.choice(CORPUS))
        try:
            node = decode(data)
        except TrustError:
            refused += 1
            continue
        accepted += 1
        assert encode(node) == data, data.hex()
    return accepted, refused


if __name__ == "__main__":
    budget = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    start = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    print(f"seed {start}")
    print("accepted {}, refused {}".format(*fuzz(turns_within(budget), start)))
