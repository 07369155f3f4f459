# /// stoilo-case
# idea = "things that are not data"
# stopped_by = "result"
# code = "STO-D001"
# goal = "inside"
# ///
class Endless(dict):
    def items(self):
        while __name__ != "attack":
            pass
        return []

    def __repr__(self):
        return "REACHED"


def run(kwargs):
    return Endless(a=1)
