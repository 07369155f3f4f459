# /// stoilo-case
# idea = "functions that wrap functions"
# stopped_by = "language"
# code = "STO-G200"
# ///
import functools


def run(kwargs):
    class Target:
        pass

    functools.update_wrapper(Target, run, assigned=("__builtins__",), updated=())
    return getattr(Target, "__builtins__")["open"](kwargs["canary"]).read()
