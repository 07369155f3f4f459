# /// stoilo-case
# idea = "string.Formatter"
# stopped_by = "language"
# code = "STO-G200"
# source = "CVE-2026-76825"
# ///
import string


def run(kwargs):
    kind = getattr([string][0], "Format" + "ter")
    names, _ = kind().get_field("0.__builtins__", [run], {})
    return names["open"](kwargs["canary"]).read()
