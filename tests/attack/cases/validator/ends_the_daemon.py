# /// stoilo-case
# idea = "ends the process that asks"
# run = "validator"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import os


def init(value):
    os.mkdir(value["mark"])
    os._exit(0)
