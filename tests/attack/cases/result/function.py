# /// stoilo-case
# idea = "things that are not data"
# stopped_by = "result"
# goal = "inside"
# ///
def run(kwargs):
    def REACHED():
        return 1

    return REACHED
