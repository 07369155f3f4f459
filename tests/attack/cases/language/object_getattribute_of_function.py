# /// stoilo-case
# idea = "reading past every getter"
# stopped_by = "language"
# code = "STO-G101"
# ///
def run(kwargs):
    names = object.__getattribute__(run, "__glob" + "als__")
    return names["__built" + "ins__"]["open"](kwargs["canary"]).read()
