# /// stoilo-case
# idea = "array.array shrunk by what is stored"
# wider = true
# stopped_by = "language"
# goal = "inside"
# control = "host"
# ///
from array import array


data = array("d", [0] * 50)


class Hostile:
    def __float__(self):
        self.near = [bytearray(b"z" * 87) for _ in range(4000)]
        del data[4:]
        self.near += [bytearray(b"z" * 87) for _ in range(4000)]
        return 1.5


def run(kwargs):
    hostile = Hostile()
    data[40] = hostile
    return "REACHED" if any(near != b"z" * 87 for near in hostile.near) else ""
