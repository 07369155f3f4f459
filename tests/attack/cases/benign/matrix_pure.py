# /// stoilo-case
# idea = "matrix pure"
# run = "task"
# level = "pure"
# ///
class Matrix:
    def __init__(self, rows):
        self._rows = [list(row) for row in rows]

    @classmethod
    def identity(cls, n):
        return cls([[float(i == j) for j in range(n)] for i in range(n)])

    @property
    def shape(self):
        return len(self._rows), len(self._rows[0])

    def __getitem__(self, key):
        i, j = key
        return self._rows[i][j]

    def __setitem__(self, key, value):
        i, j = key
        self._rows[i][j] = value

    def __matmul__(self, other):
        columns = list(zip(*other._rows))
        return Matrix(
            [[sum(a * b for a, b in zip(r, c)) for c in columns] for r in self._rows]
        )

    def __pow__(self, n):
        result, base = Matrix.identity(self.shape[0]), self
        while n:
            if n & 1:
                result = result @ base
            base = base @ base
            n >>= 1
        return result

    def __eq__(self, other):
        return self._rows == other._rows

    def determinant(self):
        m = [row[:] for row in self._rows]
        result = 1.0
        for i in range(len(m)):
            pivot = max(range(i, len(m)), key=lambda r: abs(m[r][i]))
            if i != pivot:
                m[i], m[pivot] = m[pivot], m[i]
                result = -result
            result *= m[i][i]
            for r in range(i + 1, len(m)):
                k = m[r][i] / m[i][i]
                for c in range(i, len(m)):
                    m[r][c] -= k * m[i][c]
        return result


def run(kwargs):
    m = Matrix([[1, 1], [1, 0]])
    m[0, 0] += 0
    return [
        (m**10)[0, 1],
        m.shape,
        Matrix([[2, 1], [1, 3]]).determinant(),
        m == Matrix([[1, 1], [1, 0]]),
    ]
