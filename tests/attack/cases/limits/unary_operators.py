# /// stoilo-case
# idea = "nested brackets"
# stopped_by = "gate"
# goal = "inside"
# expand = { open = ["-", 150] }
# ///
def run(kwargs):
    x = 0
    return "REACHED" if not @open@x else ""
