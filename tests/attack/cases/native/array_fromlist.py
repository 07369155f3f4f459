# /// stoilo-case
# idea = "array.array shrunk by what is stored"
# wider = true
# stopped_by = "language"
# goal = "inside"
# control = "host"
# ///
from array import array


data = array("B", [0] * 400)


class Hostile:
    def __index__(self):
        self.near = [bytearray(b"z" * 12) for _ in range(4000)]
        del data[4:]
        self.near += [bytearray(b"z" * 12) for _ in range(4000)]
        return 65


def run(kwargs):
    hostile = Hostile()
    data.fromlist([hostile])
    return "REACHED" if any(near != b"z" * 12 for near in hostile.near) else ""
