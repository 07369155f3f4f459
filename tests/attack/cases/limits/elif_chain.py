# /// stoilo-case
# idea = "chains that nest"
# stopped_by = "gate"
# goal = "inside"
# expand = { chain = ["    elif x == 2:\n        x = 1\n", 300] }
# ///
def run(kwargs):
    x = 0
    if x == 1:
        pass
@chain@    return "REACHED"
