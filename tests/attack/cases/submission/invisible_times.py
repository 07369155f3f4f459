# /// stoilo-case
# idea = "invisible characters"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    if "ab" != "a\u2062b":
        return open(kwargs["canary"]).read()
