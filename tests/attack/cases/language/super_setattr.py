# /// stoilo-case
# idea = "storing past every setter"
# stopped_by = "language"
# code = "STO-G102"
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
