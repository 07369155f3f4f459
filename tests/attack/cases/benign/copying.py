# /// stoilo-case
# idea = "copying"
# run = "task"
# level = "pure"
# ///
import copy


class Model:
    def __init__(self, weights):
        self.weights = weights
        self._step = 0

    def __copy__(self):
        return Model(self.weights)


class Plain:
    def __init__(self):
        self.items = [1, [2]]


def run(kwargs):
    model = Model([1, 2])
    shallow = copy.copy(model)
    deep = copy.deepcopy(model)
    deep.weights.append(3)
    plain = copy.deepcopy(Plain())
    plain.items[1].append(4)
    return [
        shallow.weights is model.weights,
        model.weights,
        deep.weights,
        deep._step,
        plain.items,
    ]
