# /// stoilo-case
# idea = "entries that are none"
# run = "check"
# stopped_by = "gate"
# code = "STO-P030"
# ///
if True:

    def run(kwargs):
        return open(kwargs["canary"]).read()
