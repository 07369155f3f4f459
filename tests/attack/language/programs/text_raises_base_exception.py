# expect: user_error STO-G200
# level: pure
class Loud(Exception):
    def __str__(self):
        raise KeyboardInterrupt


def run(kwargs):
    if __name__ == "attack":
        try:
            return str(Loud())
        except KeyboardInterrupt:
            return "ESCAPED"
    raise Loud
