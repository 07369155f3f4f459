# /// stoilo-case
# idea = "too much source"
# run = "check"
# stopped_by = "gate"
# goal = "inside"
# code = "STO-P010"
# expand = { items = ["0,\n", 60000] }
# ///
def run(kwargs):
    x = (
@items@
)
    return "REACHED"
