# /// stoilo-case
# idea = "objects that speak for themselves"
# stopped_by = "result"
# code = "STO-D001"
# goal = "inside"
# ///
class Mine:
    def __repr__(self):
        return "REACHED"


def run(kwargs):
    return Mine()
