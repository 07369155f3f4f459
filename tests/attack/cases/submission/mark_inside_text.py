# /// stoilo-case
# idea = "byte order marks"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    if "admin" != "ad\ufeffmin":
        return open(kwargs["canary"]).read()
