# /// stoilo-case
# idea = "unicode forms of a name"
# stopped_by = "gate"
# code = "STO-P020"
# goal = "inside"
# ///
_stoilo_ｔype = int


def run(kwargs):
    return "REACHED" if _stoilo_type is int else ""
