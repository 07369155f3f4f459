# /// stoilo-case
# idea = "invisible characters"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    if "x" != "x\U000e0061\U000e0062":
        return open(kwargs["canary"]).read()
