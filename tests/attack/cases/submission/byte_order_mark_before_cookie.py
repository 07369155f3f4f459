# /// stoilo-case
# idea = "byte order marks"
# run = "check"
# stopped_by = "gate"
# code = "STO-P011"
# escaped = true
# ///
\ufeff# coding: utf-8
def run(kwargs):
    return open(kwargs["canary"]).read()
