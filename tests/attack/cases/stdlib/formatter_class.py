# /// stoilo-case
# idea = "string.Formatter"
# stopped_by = "gate"
# code = "STO-P040"
# goal = "inside"
# source = "CVE-2024-47532"
# ///
from string import Formatter


def run(kwargs):
    text = Formatter().format("{0.__globals__}", run)
    return "REACHED" if "__builtins__" in text else ""
