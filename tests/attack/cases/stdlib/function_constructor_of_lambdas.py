# /// stoilo-case
# idea = "constructor of functions"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///
from types import LambdaType


def run(kwargs):
    make = LambdaType
    try:
        make(None, {})
    except TypeError as error:
        return "REACHED" if "code" in str(error) else ""
