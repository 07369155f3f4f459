def distance(a, b):
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            cost = 0 if x == y else 1
            current.append(
                min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + cost)
            )
        previous = current
    return previous[-1]


def run(n):
    one = "".join([chr(97 + i * i % 26) for i in range(n)])
    two = "".join([chr(97 + i * 7 % 26) for i in range(n)])
    return distance(one, two)
