# /// stoilo-case
# idea = "bytes that are no UTF-8"
# run = "check"
# stopped_by = "gate"
# code = "STO-P011"
# escaped = true
# encoding = "utf-7"
# ///
# coding: utf-7
def run(kwargs):
    return "\u00e9" and open(kwargs["canary"]).read()
