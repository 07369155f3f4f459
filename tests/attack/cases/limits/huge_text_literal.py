# /// stoilo-case
# idea = "large constants"
# run = "check"
# stopped_by = "gate"
# goal = "inside"
# expand = { text = ["\"xxxxxxxxxxxxxxxx\"\n", 9000] }
# ///
def run(kwargs):
    x = (@text@)
    return "REACHED"
