# /// stoilo-case
# idea = "coding cookies"
# run = "check"
# stopped_by = "gate"
# code = "STO-P011"
# escaped = true
# ///
# -*- coding: latin-1 -*-
def run(kwargs):
    if len("\xe9") == 2:
        return open(kwargs["canary"]).read()
