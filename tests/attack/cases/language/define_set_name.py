# /// stoilo-case
# idea = "special methods that libraries trust"
# stopped_by = "gate"
# code = "STO-G012"
# goal = "inside"
# ///
class Name:
    def __set_name__(self, owner, name):
        self.word = "REACHED"


class Owner:
    x = Name()


def run(kwargs):
    return Owner.x.word
