# /// stoilo-case
# idea = "special methods that the language relies on"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# source = "smolagents issue 2395"
# ///
seen = []


class Bomb:
    def __del__(self):
        seen.append("REACHED")


def run(kwargs):
    Bomb()
    return seen[0]
