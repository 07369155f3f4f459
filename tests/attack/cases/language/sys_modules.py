# /// stoilo-case
# idea = "module through an allowed module"
# stopped_by = "language"
# code = "STO-G200"
# source = "CVE-2025-5120"
# ///
import sys


def run(kwargs):
    tools = [sys][0]
    system = tools.modules["posix"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
