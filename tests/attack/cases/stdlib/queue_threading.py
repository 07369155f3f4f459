# /// stoilo-case
# idea = "modules inside library modules, by built names"
# stopped_by = "language"
# ///
import queue


def run(kwargs):
    system = getattr(getattr(queue, "thread" + "ing"), "_" + "os")
    return system.read(system.open(kwargs["canary"], 0), 99).decode()
