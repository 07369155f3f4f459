# /// stoilo-case
# idea = "types that build functions"
# stopped_by = "language"
# ///
from types import MethodType


def run(kwargs):
    read = MethodType(getattr(object, "__getattri" + "bute__"), run)
    builtins = read("__globals__")["__builtins__"]
    opened = builtins["open"] if isinstance(builtins, dict) else builtins.open
    return opened(kwargs["canary"]).read()
