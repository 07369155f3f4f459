# /// stoilo-case
# idea = "names that normalise to others"
# run = "check"
# stopped_by = "gate"
# code = "STO-P020"
# escaped = true
# ///
def run(kwargs):
    a\u2071 = open
    return ai(kwargs["canary"]).read()
