# /// stoilo-case
# idea = "constructor of functions"
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# wider = true
# ///


def run(kwargs):
    make = getattr(lambda: 0, "__class__")
    try:
        make(None, {})
    except TypeError as error:
        return "REACHED" if "code" in str(error) else ""
