# /// stoilo-case
# idea = "a validator that looks around"
# run = "validator"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import os


def init(value):
    return os.mkdir(value["mark"]) is None
