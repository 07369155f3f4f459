# /// stoilo-case
# idea = "odd import forms"
# stopped_by = "gate"
# code = "STO-P042"
# ///
from os import *


def run(kwargs):
    return read(open(kwargs["canary"], 0), 99).decode()
