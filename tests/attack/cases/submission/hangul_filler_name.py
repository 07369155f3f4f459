# /// stoilo-case
# idea = "invisible characters"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    \u3164 = open
    return \u3164(kwargs["canary"]).read()
