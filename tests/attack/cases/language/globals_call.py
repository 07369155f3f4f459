# /// stoilo-case
# idea = "missing builtins"
# stopped_by = "gate"
# code = "STO-G020"
# ///
def run(kwargs):
    return globals()["__builtins__"]["open"](kwargs["canary"]).read()
