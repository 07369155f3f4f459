# /// stoilo-case
# idea = "things that are not data"
# stopped_by = "result"
# goal = "inside"
# ///
def run(kwargs):
    class REACHED:
        pass

    return REACHED
