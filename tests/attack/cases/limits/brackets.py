# /// stoilo-case
# idea = "nested brackets"
# stopped_by = "gate"
# goal = "inside"
# code = "STO-P022"
# expand = { open = ["[", 150], close = ["]", 150] }
# ///
def run(kwargs):
    x = @open@@close@
    return "REACHED" if x else ""
