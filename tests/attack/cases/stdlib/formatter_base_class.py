# /// stoilo-case
# idea = "string.Formatter"
# stopped_by = "gate"
# code = "STO-P040"
# source = "CVE-2026-76825"
# ///
from string import Formatter


class Own(Formatter):
    def get_value(self, key, args, kwargs):
        return run


def run(kwargs):
    names, _ = Own().get_field("0.__builtins__", (), {})
    return names["open"](kwargs["canary"]).read()
