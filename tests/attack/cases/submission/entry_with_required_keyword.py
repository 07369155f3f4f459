# /// stoilo-case
# idea = "entries that are none"
# run = "check"
# stopped_by = "gate"
# code = "STO-P032"
# ///
def run(kwargs, *, read):
    return read(kwargs["canary"]).read()


run.__kwdefaults__ = {"read": open}
