# /// stoilo-case
# idea = "Unicode error outside its text"
# wider = true
# stopped_by = "language"
# code = "STO-G108"
# goal = "inside"
# control = "host"
# ///
class Own(UnicodeDecodeError):
    def __init__(self, start):
        super().__init__("utf-8", b"abc", start, start + 1, "why")


def run(kwargs):
    return "REACHED" if "decode byte" in str(Own(-1)) else ""
