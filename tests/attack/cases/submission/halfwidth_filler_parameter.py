# /// stoilo-case
# idea = "invisible names"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs, \uffa0=open):
    return \uffa0(kwargs["canary"]).read()
