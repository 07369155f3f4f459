# /// stoilo-case
# idea = "invisible names"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    path\u034f = open
    return path\u034f(kwargs["canary"]).read()
