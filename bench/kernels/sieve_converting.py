class Count:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def run(n):
    prime = bytearray([1]) * n
    prime[0] = prime[1] = 0
    for number in range(2, n):
        if prime[number]:
            for multiple in range(number * number, n, number):
                prime[multiple] = 0
    return prime.count(Count(1))
