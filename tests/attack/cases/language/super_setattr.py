# /// stoilo-case
# idea = "super objects"
# stopped_by = "gate"
# code = "STO-G011"
# goal = "inside"
# ///
class A:
    def put(self):
        super().__setattr__("__class__", B)


class B(A):
    word = "REACHED"


def run(kwargs):
    a = A()
    a.put()
    return a.word
