# /// stoilo-case
# idea = "module through an allowed module"
# stopped_by = "gate"
# code = "STO-P040"
# source = "CVE-2025-5120"
# ///
from statistics import sys


def run(kwargs):
    system = sys.modules["posix"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
