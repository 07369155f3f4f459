# /// stoilo-case
# idea = "class hierarchy walk"
# stopped_by = "gate"
# code = "STO-G101"
# source = "CVE-2025-9959"
# ///
from string import Template


def run(kwargs):
    names = Template.__init__.__globals__["__builtins__"]
    return names["open"](kwargs["canary"]).read()
