# /// stoilo-case
# idea = "reduce protocol"
# stopped_by = "gate"
# code = "STO-G101"
# source = "asteval issue 86"
# ///
def run(kwargs):
    get = [].append.__reduce__()[0]
    names = get(run, "__globals__")["__builtins__"]
    return names["open"](kwargs["canary"]).read()
