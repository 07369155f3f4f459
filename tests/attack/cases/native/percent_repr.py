# /// stoilo-case
# idea = "buffer resized by a separator or a text"
# wider = true
# stopped_by = "language"
# goal = "inside"
# control = "host"
# ///
SIZE = 384
data = bytearray(b"%r" + b"q" * (SIZE - 2))


class Hostile:
    def __repr__(self):
        data.clear()
        self.freed = bytearray(b"m" * SIZE)
        return "!"


def run(kwargs):
    return "REACHED" if b"mm" in data % Hostile() else ""
