# expect: refused STO-G019
# level: pure
from random import _os


def run(kwargs):
    return "ESCAPED" if _os.getpid() else ""
