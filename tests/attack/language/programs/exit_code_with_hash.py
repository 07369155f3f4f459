# expect: user_error STO-G200
# level: pure
class Code:
    def __hash__(self):
        raise KeyboardInterrupt


def run(kwargs):
    if __name__ == "attack":
        try:
            return "" if Code() in {None, 0} else ""
        except KeyboardInterrupt:
            return "ESCAPED"
    raise SystemExit(Code())
