# /// stoilo-case
# idea = "sizes that are not there"
# run = "result"
# stopped_by = "limits"
# code = "STO-S014"
# goal = "inside"
# ///
def run(kwargs):
    return [(1 << 43).to_bytes(8, "big")]


def parent(answer):
    try:
        bytearray(int.from_bytes(answer[:8], "big"))
    except MemoryError:
        return "REACHED"
