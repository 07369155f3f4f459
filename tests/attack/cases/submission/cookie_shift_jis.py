# /// stoilo-case
# idea = "bytes that are no UTF-8"
# run = "check"
# stopped_by = "gate"
# code = "STO-P011"
# escaped = true
# encoding = "shift_jis"
# ///
# coding: shift_jis
def run(kwargs):
    text = "\u8868"
    return open(kwargs["canary"]).read()
