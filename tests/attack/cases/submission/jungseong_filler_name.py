# /// stoilo-case
# idea = "invisible names"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    \u1160 = open
    return \u1160(kwargs["canary"]).read()
