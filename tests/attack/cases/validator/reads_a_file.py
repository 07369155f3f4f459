# /// stoilo-case
# idea = "a validator that looks around"
# run = "validator"
# stopped_by = "gate"
# code = "STO-G020"
# ///
def init(value):
    raise ValueError(open(value["canary"]).read())
