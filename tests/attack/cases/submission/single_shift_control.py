# /// stoilo-case
# idea = "control characters"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    if "a\x8e" != "a":
        return open(kwargs["canary"]).read()
