# /// stoilo-case
# idea = "class patterns"
# stopped_by = "gate"
# code = "STO-G010"
# ///
from abc import ABC


class Has(ABC):
    __match_args__ = ("__globals__",)


def run(kwargs):
    Has.register(type(run))
    match run:
        case Has(names):
            return names["__builtins__"]["open"](kwargs["canary"]).read()
