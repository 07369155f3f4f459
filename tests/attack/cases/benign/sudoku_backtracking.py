# /// stoilo-case
# idea = "sudoku backtracking"
# run = "task"
# level = "pure"
# ///
def solve(board):
    for i, row in enumerate(board):
        for j, value in enumerate(row):
            if value:
                continue
            for guess in range(1, 5):
                if fits(board, i, j, guess):
                    board[i][j] = guess
                    if solve(board):
                        return True
                    board[i][j] = 0
            return False
    return True


def fits(board, i, j, guess):
    if guess in board[i] or any(row[j] == guess for row in board):
        return False
    r, c = i // 2 * 2, j // 2 * 2
    return all(board[a][b] != guess for a in (r, r + 1) for b in (c, c + 1))


def run(kwargs):
    board = [[1, 0, 0, 0], [0, 0, 3, 0], [0, 1, 0, 0], [0, 0, 0, 2]]
    assert solve(board), "has a solution"
    return board
