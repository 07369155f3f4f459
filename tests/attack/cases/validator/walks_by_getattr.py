# /// stoilo-case
# idea = "a validator that looks around"
# run = "validator"
# stopped_by = "validation"
# verdict = "raised"
# ///
def init(value):
    names = getattr(init, "__built" + "ins__")
    raise ValueError(names["open"](value["canary"]).read())
