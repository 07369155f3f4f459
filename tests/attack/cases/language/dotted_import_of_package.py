# /// stoilo-case
# idea = "odd import forms"
# stopped_by = "gate"
# code = "STO-P040"
# ///
import os.path as paths


def run(kwargs):
    return str(paths.os.mkdir(kwargs["mark"]))
