# /// stoilo-case
# idea = "hostile exception to the reporter"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
class Loud(Exception):
    def __str__(self):
        raise KeyboardInterrupt


def run(kwargs):
    if __name__ == "attack":
        try:
            return str(Loud())
        except KeyboardInterrupt:
            return "REACHED"
    raise Loud
