# /// stoilo-case
# idea = "too much source"
# run = "check"
# stopped_by = "gate"
# goal = "inside"
# code = "STO-P010"
# expand = { text = ["# honest comment\n", 17000] }
# ///
@text@
def run(kwargs):
    return "REACHED"
