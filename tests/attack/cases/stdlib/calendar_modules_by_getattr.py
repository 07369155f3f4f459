# /// stoilo-case
# idea = "modules inside library modules, by built names"
# stopped_by = "language"
# code = "STO-G200"
# ///
import calendar


def run(kwargs):
    system = getattr(calendar, "s" + "ys").modules["os"]
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
