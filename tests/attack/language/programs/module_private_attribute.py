# expect: user_error STO-G200
# level: pure
import random


def run(kwargs):
    return "ESCAPED" if random._os else ""
