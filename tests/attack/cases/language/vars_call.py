# /// stoilo-case
# idea = "missing builtins"
# stopped_by = "gate"
# code = "STO-G020"
# ///
import random


def run(kwargs):
    system = vars(random)["_os"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
