# /// stoilo-case
# idea = "module through an allowed module"
# stopped_by = "language"
# code = "STO-G200"
# source = "CVE-2025-5120"
# ///
import random


def run(kwargs):
    module = [random][0]
    system = module._os
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
