# /// stoilo-case
# idea = "names that look alike"
# run = "check"
# stopped_by = "gate"
# code = "STO-P020"
# escaped = true
# ///
def run(kwargs):
    return \uff4f\uff50\uff45\uff4e(kwargs["canary"]).read()
