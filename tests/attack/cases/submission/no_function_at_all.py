# /// stoilo-case
# idea = "entries that are none"
# run = "check"
# stopped_by = "gate"
# code = "STO-P030"
# ///
run = (lambda kwargs: open(kwargs["canary"]).read())
