# /// stoilo-case
# idea = "library members that write on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from calendar import Calendar


class Own:
    firstweekday = Calendar.firstweekday


def run(kwargs):
    own = Own()
    own.firstweekday = 4
    return "REACHED" if own._firstweekday == 4 else ""
