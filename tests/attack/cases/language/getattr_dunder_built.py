# /// stoilo-case
# idea = "getattr with a built name"
# stopped_by = "language"
# code = "STO-G101"
# source = "CVE-2025-5120"
# ///
def run(kwargs):
    names = getattr(run, "__glo" + "bals__")["__builtins__"]
    return names["open"](kwargs["canary"]).read()
