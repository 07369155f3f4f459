# /// stoilo-case
# idea = "getters by name"
# stopped_by = "language"
# ///
import operator


class Name(str):
    def split(self, *args):
        return ["real"]


def run(kwargs):
    builtins = operator.attrgetter(Name("__globals__"))(run)["__builtins__"]
    opened = builtins["open"] if isinstance(builtins, dict) else builtins.open
    return opened(kwargs["canary"]).read()
