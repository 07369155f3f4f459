# /// stoilo-case
# idea = "control characters"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    return open(kwargs["canary"]).read()  # \x1b[2K\x1b[1A
    return 1
