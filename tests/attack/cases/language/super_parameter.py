# /// stoilo-case
# idea = "names with a meaning in the transformer"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
class A:
    def read(self, super):
        return super().__init__.__self__.__class__.__name__


def run(kwargs):
    return "REACHED" if A().read(lambda: kwargs) == "dict" else ""
