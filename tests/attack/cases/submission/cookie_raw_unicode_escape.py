# /// stoilo-case
# idea = "coding cookies"
# run = "check"
# stopped_by = "gate"
# code = "STO-P011"
# escaped = true
# ///
# coding: raw_unicode_escape
def run(kwargs):
    word = "honest \\u0022; words = open(kwargs['canary']).read() #"
    return words
