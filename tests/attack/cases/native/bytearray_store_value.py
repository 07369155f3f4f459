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
        self.freed = bytearray(b"z" * SIZE)
        data.extend(bytes(SIZE))
        return 65


data = bytearray(b"q" * SIZE)


def run(kwargs):
    hostile = Hostile()
    before = bytes(b"z" * SIZE)
    data[32] = hostile
    return "REACHED" if hostile.freed != before else ""
