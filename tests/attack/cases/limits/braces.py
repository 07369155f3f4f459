# /// stoilo-case
# idea = "nested brackets"
# stopped_by = "gate"
# goal = "inside"
# code = "STO-P022"
# expand = { open = ["{1: ", 150], close = ["}", 150] }
# ///
def run(kwargs):
    x = @open@1@close@
    return "REACHED" if x else ""
