# /// stoilo-case
# idea = "special methods that the language relies on"
# stopped_by = "gate"
# code = "STO-G012"
# goal = "inside"
# ///
class Base:
    def __init_subclass__(cls, **options):
        cls.word = "REACHED"


class Below(Base):
    pass


def run(kwargs):
    return Below.word
