# /// stoilo-case
# idea = "hooks of classes that extend a library's"
# stopped_by = "language"
# goal = "inside"
# ///
from queue import Queue

seen = []


class Spy(Queue):
    def __setattr__(self, name, value):
        seen.append(name)
        object.__setattr__(self, name, value)


def run(kwargs):
    Spy()
    return "REACHED" if "mutex" in seen else ""
