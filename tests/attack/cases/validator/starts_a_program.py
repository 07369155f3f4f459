# /// stoilo-case
# idea = "a validator that looks around"
# run = "validator"
# stopped_by = "gate"
# code = "STO-P040"
# ///
from subprocess import run as start


def compare(one, other):
    return start(["touch", one["mark"]]).returncode == 0
