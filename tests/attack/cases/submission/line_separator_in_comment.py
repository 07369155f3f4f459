# /// stoilo-case
# idea = "line separators that Python does not see"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    # Refuse what is not asked for:\u2028    return 1
    return open(kwargs["canary"]).read()
