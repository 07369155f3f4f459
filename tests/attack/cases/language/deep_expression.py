# /// stoilo-case
# idea = "deep nesting"
# stopped_by = "gate"
# code = "STO-P022"
# goal = "inside"
# ///
def run(kwargs):
    x = 0
    return (
        "REACHED"
        if not (
            --------------------------------------------------------------------------------------------------------------------------------x
        )
        else ""
    )
