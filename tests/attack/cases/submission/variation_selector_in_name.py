# /// stoilo-case
# idea = "invisible names"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    path\ufe0f = open
    return path\ufe0f(kwargs["canary"]).read()
