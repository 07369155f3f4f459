# expect: refused STO-G018
# level: pure
import os


def run(kwargs):
    return "ESCAPED" if os.getpid() else ""
