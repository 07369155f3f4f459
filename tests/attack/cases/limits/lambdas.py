# /// stoilo-case
# idea = "nested brackets"
# run = "check"
# stopped_by = "gate"
# goal = "inside"
# expand = { open = ["lambda: ", 100] }
# ///
def run(kwargs):
    x = @open@1
    return "REACHED" if x else ""
