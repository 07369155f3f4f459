# /// stoilo-case
# idea = "modules inside library modules"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import logging


def run(kwargs):
    system = logging.os
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
