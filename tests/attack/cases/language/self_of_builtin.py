# /// stoilo-case
# idea = "function internals"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def run(kwargs):
    return len.__self__.open(kwargs["canary"]).read()
