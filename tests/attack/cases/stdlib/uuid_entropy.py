# /// stoilo-case
# idea = "entropy"
# stopped_by = "gate"
# code = "STO-P040"
# goal = "inside"
# ///
import uuid


def run(kwargs):
    return "REACHED" if uuid.uuid4() else ""
