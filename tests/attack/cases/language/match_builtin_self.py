# /// stoilo-case
# idea = "class patterns"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def run(kwargs):
    match len:
        case object(__self__=object(open=reader)):
            return reader(kwargs["canary"]).read()
