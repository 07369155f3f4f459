# /// stoilo-case
# idea = "enum internals"
# stopped_by = "gate"
# ///
import enum


class Colour(enum.Enum):
    RED = 1


def run(kwargs):
    names = getattr(enum, "_iter_bits_lsb")
    builtins = names.__globals__["__builtins__"]
    return builtins["open"](kwargs["canary"]).read()
