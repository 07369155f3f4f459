# /// stoilo-case
# idea = "attributes as a dictionary"
# stopped_by = "language"
# code = "STO-G101"
# ///
import random


def run(kwargs):
    system = vars(random)["_os"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
