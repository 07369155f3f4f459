# /// stoilo-case
# idea = "modules inside library modules"
# stopped_by = "gate"
# code = "STO-P040"
# ///
from contextlib import sys as system


def run(kwargs):
    os = system.modules["os"]
    return os.read(os.open(kwargs["canary"], 0), 99).decode()
