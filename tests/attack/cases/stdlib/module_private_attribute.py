# /// stoilo-case
# idea = "module behind a library module"
# stopped_by = "gate"
# code = "STO-P040"
# source = "CVE-2025-5120"
# ///
import random


def run(kwargs):
    system = random._os
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
