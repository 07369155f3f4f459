# /// stoilo-case
# idea = "hostile exception to the reporter"
# stopped_by = "language"
# code = "STO-G101"
# ///
def run(kwargs):
    try:
        found = getattr(run, "__glob" + "als__")["__builtins__"]
        opened = found["open"] if isinstance(found, dict) else found.open
        return opened(kwargs["canary"]).read()
    except Exception as error:
        error.args = ("STO-P030", "forged", "")
        error.code = "STO-P030"
        raise
