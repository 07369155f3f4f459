# /// stoilo-case
# idea = "too much source"
# run = "check"
# stopped_by = "gate"
# goal = "inside"
# code = "STO-P010"
# expand = { blanks = [" ", 10001] }
# ///
def run(kwargs):
    x = "" ;@blanks@x = "REACHED"
    return x
