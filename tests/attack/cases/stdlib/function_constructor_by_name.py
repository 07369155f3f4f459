# /// stoilo-case
# idea = "constructor of functions"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from types import FunctionType


def run(kwargs):
    make = FunctionType
    try:
        make(None, {})
    except TypeError as error:
        return "REACHED" if "code" in str(error) else ""
