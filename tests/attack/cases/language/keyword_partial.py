# /// stoilo-case
# idea = "keywords that become attributes"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from functools import partial
from types import SimpleNamespace


def run(kwargs):
    made = partial(SimpleNamespace, **{"__deep" + "copy__": lambda memo: "REACHED"})()
    return repr(made) and "REACHED"
