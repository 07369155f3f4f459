# /// stoilo-case
# idea = "bytearray resized by what is stored"
# wider = true
# stopped_by = "language"
# goal = "inside"
# control = "host"
# source = "gh-91153"
# ///
SIZE = 384


class Hostile:
    def __index__(self):
        data.clear()
        self.freed = bytearray(bytes(range(192)) * 2)
        data.extend(bytes(SIZE))
        return 64


data = bytearray(b"q" * SIZE)


def run(kwargs):
    hostile = Hostile()
    before = bytes(bytes(range(192)) * 2)
    del data[32:hostile:2]
    return "REACHED" if hostile.freed != before else ""
