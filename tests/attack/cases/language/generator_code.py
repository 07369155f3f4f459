# /// stoilo-case
# idea = "generator frames"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
def run(kwargs):
    code = (x for x in [1]).gi_code
    made = code.replace(co_consts=("REACHED",))
    return made.co_consts[0]
