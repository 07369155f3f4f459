class Account:
    __slots__ = ("_balance", "__pin")

    def __init__(self, pin):
        self._balance = 0
        self.__pin = pin

    def pay(self, n, pin):
        if pin != self.__pin:
            raise PermissionError("wrong pin")
        self._balance += n
        return self._balance

    def same(self, other):
        return self._balance == other._balance and self.__pin == other.__pin

    def _inner(self):
        return "inner"


_module_private = 4


def _helper():
    return _module_private


def run(kwargs):
    a, b = Account(1), Account(1)
    paid = a.pay(5, 1)
    return [paid, a._balance, a.same(b), a._inner(), _helper(), getattr(a, "_balance"), [x._balance for x in (a, b)]]


# abuse: STO-G101
import random


class Own:
    def read(self):
        return self._randbelow


def run(kwargs):
    return "REACHED" if Own.read(random.Random(1)) else "no"
