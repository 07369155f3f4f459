# /// stoilo-case
# idea = "an ending by name"
# level = "pure"
# wider = true
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# control = "none"
# ///
class PolicyRefusal(Exception):
    pass


def run(kwargs):
    raise PolicyRefusal("STO-S005", "something outside the jail killed the run")
