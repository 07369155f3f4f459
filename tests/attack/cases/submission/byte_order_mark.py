# /// stoilo-case
# idea = "byte order marks"
# run = "check"
# stopped_by = "gate"
# code = "STO-P012"
# escaped = true
# ///
\ufeffdef run(kwargs):
    return open(kwargs["canary"]).read()
