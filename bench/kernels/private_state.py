class Account:
    def __init__(self, owner):
        self._owner = owner
        self._balance = 0
        self._history = []

    def deposit(self, amount):
        self._balance += amount
        self._history.append(amount)

    def withdraw(self, amount):
        if amount > self._balance:
            return False
        self._balance -= amount
        self._history.append(-amount)
        return True

    @property
    def balance(self):
        return self._balance

    def length(self):
        return len(self._history)


class Bank:
    def __init__(self, size):
        self._accounts = [Account(f"owner {number}") for number in range(size)]
        self._state = 12345

    def _draw(self, below):
        self._state = (self._state * 1103515245 + 12345) % 2147483648
        return self._state % below

    def step(self):
        source = self._accounts[self._draw(len(self._accounts))]
        target = self._accounts[self._draw(len(self._accounts))]
        source.deposit(7)
        amount = self._draw(20)
        if source.withdraw(amount):
            target.deposit(amount)

    def total(self):
        return sum([account.balance for account in self._accounts])


def run(n):
    bank = Bank(50)
    for _ in range(n):
        bank.step()
    return bank.total(), bank._accounts[3].length()
