# /// stoilo-case
# idea = "buffer resized by a separator or a text"
# wider = true
# stopped_by = "language"
# goal = "inside"
# control = "host"
# ///
SIZE = 384
data = bytearray(b"q" * SIZE)
view = memoryview(data)


class Hostile(str):
    def __len__(self):
        view.release()
        data.clear()
        self.freed = bytearray(b"m" * SIZE)
        return 1


def run(kwargs):
    return "REACHED" if "6d" in view.hex(Hostile(":"), 2) else ""
