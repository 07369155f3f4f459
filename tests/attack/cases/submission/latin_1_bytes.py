# /// stoilo-case
# idea = "bytes that are no UTF-8"
# run = "check"
# stopped_by = "gate"
# code = "STO-P011"
# escaped = true
# encoding = "latin-1"
# ///
# coding: latin-1
def run(kwargs):
    return "\xe9" and open(kwargs["canary"]).read()
