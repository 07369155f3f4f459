# /// stoilo-case
# idea = "getters by name"
# stopped_by = "language"
# code = "STO-G101"
# ///
from operator import attrgetter


def run(kwargs):
    builtins = attrgetter("__globals__")(run)["__builtins__"]
    opened = builtins["open"] if isinstance(builtins, dict) else builtins.open
    return opened(kwargs["canary"]).read()
