# /// stoilo-case
# idea = "true by its own word"
# run = "validator"
# stopped_by = "validation"
# verdict = "not_bool"
# goal = "inside"
# ///
class Yes:
    def __len__(self):
        return 1


def compare(one, other):
    return Yes()
