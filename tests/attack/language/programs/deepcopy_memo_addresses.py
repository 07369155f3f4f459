# expect: user_error STO-G200
# level: pure
import copy


class A:
    def __deepcopy__(self, memo):
        return [key for key in memo]


def run(kwargs):
    return "ESCAPED" if copy.deepcopy([A()])[0] else ""
