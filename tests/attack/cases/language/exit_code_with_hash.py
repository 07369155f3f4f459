# /// stoilo-case
# idea = "hostile exception to the reporter"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
class Code:
    def __hash__(self):
        raise KeyboardInterrupt


def run(kwargs):
    if __name__ == "attack":
        try:
            return "" if Code() in {None, 0} else ""
        except KeyboardInterrupt:
            return "REACHED"
    raise SystemExit(Code())
