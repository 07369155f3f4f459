# /// stoilo-case
# idea = "hooks of classes that extend a library's"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from queue import Queue


class Base(Queue):
    def __init_subclass__(cls, **options):
        cls.word = "REACHED"


class Below(Base):
    pass


def run(kwargs):
    return Below.word
