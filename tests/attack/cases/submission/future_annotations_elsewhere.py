# /// stoilo-case
# idea = "future imports that change the language"
# run = "check"
# stopped_by = "gate"
# code = "STO-P042"
# ///
from __future__ import generator_stop


def run(kwargs):
    return open(kwargs["canary"]).read()
