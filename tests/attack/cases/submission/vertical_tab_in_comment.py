# /// stoilo-case
# idea = "line separators that Python does not see"
# run = "check"
# stopped_by = "gate"
# code = "STO-P013"
# escaped = true
# ///
def run(kwargs):
    # Refuse what is not asked for:\x0b    return 1
    return open(kwargs["canary"]).read()
