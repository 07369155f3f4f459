# expect: user_error STO-G200
# level: pure
import functools


def run(kwargs):
    class Target:
        pass

    return (
        "ESCAPED"
        if functools.update_wrapper(Target(), run, assigned=("__globals__",))
        else ""
    )
