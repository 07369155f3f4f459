# /// stoilo-case
# idea = "unicode forms of a name"
# stopped_by = "gate"
# code = "STO-P020"
# ///
def run(kwargs):
    return run.__𝓰lobals__["__builtins__"]["open"](kwargs["canary"]).read()
