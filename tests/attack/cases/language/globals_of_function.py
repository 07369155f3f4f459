# /// stoilo-case
# idea = "function internals"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def run(kwargs):
    return run.__globals__["__builtins__"]["open"](kwargs["canary"]).read()
