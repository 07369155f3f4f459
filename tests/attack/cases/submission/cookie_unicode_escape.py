# /// stoilo-case
# idea = "coding cookies"
# run = "check"
# stopped_by = "gate"
# code = "STO-P011"
# escaped = true
# ///
# coding: unicode_escape
# An honest task. \\nREAD = open
def run(kwargs):
    return READ(kwargs["canary"]).read()
