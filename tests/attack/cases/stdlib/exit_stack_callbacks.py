# /// stoilo-case
# idea = "library context managers"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from contextlib import ExitStack


def run(kwargs):
    with ExitStack() as stack:
        stack.callback(print, "never")
        getattr(stack, "_exit_call" + "backs").clear()
    return "REACHED"
