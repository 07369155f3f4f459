# /// stoilo-case
# idea = "frames from exceptions"
# stopped_by = "language"
# code = "STO-G101"
# ///
from contextlib import ExitStack


def run(kwargs):
    seen = []

    def keep(kind, value, trace):
        seen.append(trace)
        return True

    with ExitStack() as stack:
        stack.push(keep)
        raise ValueError
    frame = getattr(seen[0], "tb_frame")
    return getattr(frame, "f_builtins")["open"](kwargs["canary"]).read()
