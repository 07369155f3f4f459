# /// stoilo-case
# idea = "uses up the server"
# run = "validator"
# stopped_by = "limits"
# goal = "inside"
# limit = "cpu_s"
# limits = { cpu_s = 1 }
# ///
def init(value):
    while __name__ != "attack":
        pass
    return True
