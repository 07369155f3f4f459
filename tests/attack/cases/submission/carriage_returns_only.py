# /// stoilo-case
# idea = "line ends"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):\x0d    return open(kwargs["canary"]).read()
