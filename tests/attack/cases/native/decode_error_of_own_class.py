# /// stoilo-case
# idea = "fields of a Unicode error changed"
# wider = true
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# control = "host"
# ///
class Own(UnicodeDecodeError):
    def move(self):
        self.start = -1


def run(kwargs):
    error = Own("utf-8", b"abc", 0, 0, "why")
    error.move()
    return "REACHED" if "decode byte" in str(error) else ""
