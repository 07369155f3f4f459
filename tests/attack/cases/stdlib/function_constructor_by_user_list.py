# /// stoilo-case
# idea = "constructor of functions"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from collections import UserList


class Twice:
    def __call__(self):
        return 0


def run(kwargs):
    make = UserList.copy(int)(run)
    try:
        make(None, {})
    except TypeError as error:
        return "REACHED" if "code" in str(error) else ""
