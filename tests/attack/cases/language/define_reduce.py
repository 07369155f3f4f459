# /// stoilo-case
# idea = "reduce protocol"
# stopped_by = "gate"
# code = "STO-G010"
# ///
import copy


class Thief:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path,))


def run(kwargs):
    return copy.copy(Thief(kwargs["canary"])).read()
