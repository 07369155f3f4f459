# /// stoilo-case
# idea = "types that build functions"
# stopped_by = "gate"
# ///
import types


def run(kwargs):
    namespace = types.new_class("Made", (), {}, lambda body: body.update(x=1))
    builtins = run.__globals__["__builtins__"]
    opened = builtins["open"] if isinstance(builtins, dict) else builtins.open
    return opened(kwargs["canary"]).read() if namespace else ""
