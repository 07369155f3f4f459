# /// stoilo-case
# idea = "unicode forms of a name"
# stopped_by = "gate"
# code = "STO-P020"
# ///
def run(kwargs):
    return ｏｐｅｎ(kwargs["canary"]).read()
