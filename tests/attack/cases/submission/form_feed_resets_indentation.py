# /// stoilo-case
# idea = "control characters"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    if False:
        pass
        \x0c    return open(kwargs["canary"]).read()
