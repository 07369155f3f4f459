# /// stoilo-case
# idea = "modules inside library modules"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import csv


def run(kwargs):
    system = csv.re.enum.sys.modules["os"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
