# /// stoilo-case
# idea = "library members that write on a foreign self"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from calendar import Calendar


def run(kwargs):
    Calendar.firstweekday.fset(Calendar, 4)
    return "REACHED" if Calendar.firstweekday.fget(Calendar) == 4 else ""
