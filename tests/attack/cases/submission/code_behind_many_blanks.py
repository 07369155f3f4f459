# /// stoilo-case
# idea = "code out of sight"
# run = "check"
# stopped_by = "gate"
# code = "STO-P010"
# expand = { blanks = [" ", 10001] }
# ///
def run(kwargs):
    x = 1;@blanks@x = open(kwargs["canary"]).read()
    return x
