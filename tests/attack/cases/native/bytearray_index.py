# /// stoilo-case
# idea = "bytearray resized by what is looked for"
# wider = true
# stopped_by = "language"
# goal = "inside"
# control = "host"
# ///
SIZE = 384


class Hostile:
    def __index__(self):
        data.clear()
        self.freed = bytearray(b"m" * SIZE)
        return 109


data = bytearray(b"q" * SIZE)


def run(kwargs):
    hostile = Hostile()
    try:
        found = data.index(hostile) >= 0
    except ValueError:
        return ""
    return "REACHED" if found else ""
