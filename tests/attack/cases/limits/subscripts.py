# /// stoilo-case
# idea = "nested brackets"
# stopped_by = "gate"
# goal = "inside"
# code = "STO-P022"
# expand = { open = ["x[", 120], close = ["]", 120] }
# ///
def run(kwargs):
    x = [0]
    return "REACHED" if not @open@0@close@ else ""
