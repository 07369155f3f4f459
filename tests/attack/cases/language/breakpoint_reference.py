# /// stoilo-case
# idea = "missing builtins"
# stopped_by = "gate"
# code = "STO-G020"
# goal = "inside"
# ///
def run(kwargs):
    return "REACHED" if [breakpoint, input, help] else ""
