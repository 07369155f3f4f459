# /// stoilo-case
# idea = "methods made by dataclass on foreign objects"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass
from pprint import PrettyPrinter


@dataclass(eq=False)
class Patch:
    pformat: object


def run(kwargs):
    make = getattr(Patch, "__in" + "it__")
    list(map(make, [PrettyPrinter], [lambda self, value: "REACHED"]))
    return PrettyPrinter().pformat(1)
