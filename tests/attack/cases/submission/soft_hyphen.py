# /// stoilo-case
# idea = "invisible characters"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    if "admin" != "ad\xadmin":
        return open(kwargs["canary"]).read()
