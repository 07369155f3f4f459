# /// stoilo-case
# idea = "getattr with a built name"
# stopped_by = "language"
# code = "STO-G101"
# ///
def run(kwargs):
    [names] = map(getattr, [run], ["__builtins__"])
    return names["open"](kwargs["canary"]).read()
