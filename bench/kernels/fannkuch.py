def run(n):
    count = list(range(1, n + 1))
    best = checksum = sign = 0
    r = n
    permutation = list(range(n))
    while True:
        while r != 1:
            count[r - 1] = r
            r = r - 1
        first = permutation[0]
        if first:
            p = permutation[:]
            flips = 0
            while first:
                p[: first + 1] = p[: first + 1][::-1]
                first = p[0]
                flips = flips + 1
            best = max(best, flips)
            checksum = checksum + (flips if sign % 2 == 0 else -flips)
        sign = sign + 1
        while True:
            if r == n:
                return checksum, best
            head = permutation[0]
            permutation[:r] = permutation[1 : r + 1]
            permutation[r] = head
            count[r] = count[r] - 1
            if count[r] > 0:
                break
            r = r + 1
