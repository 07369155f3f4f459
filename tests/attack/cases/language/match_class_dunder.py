# /// stoilo-case
# idea = "class patterns"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def run(kwargs):
    match run:
        case object(__globals__={"__builtins__": {"open": reader}}):
            return reader(kwargs["canary"]).read()
