# /// stoilo-case
# idea = "types that build functions"
# stopped_by = "language"
# ///
from types import FunctionType


def run(kwargs):
    code = getattr(run, "__co" + "de__")
    again = FunctionType(code, {"__builtins__": {}})
    builtins = getattr(run, "__glo" + "bals__")["__builtins__"]
    opened = builtins["open"] if isinstance(builtins, dict) else builtins.open
    return opened(kwargs["canary"]).read() if again else ""
