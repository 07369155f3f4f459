# /// stoilo-case
# idea = "class patterns"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def run(kwargs):
    match [run]:
        case [object(__none__=names) | object(__builtins__=names)]:
            return names["open"](kwargs["canary"]).read()
