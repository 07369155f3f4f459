# /// stoilo-case
# idea = "sorting algorithms"
# run = "task"
# level = "pure"
# ///
def quicksort(items):
    if len(items) < 2:
        return items
    pivot, *rest = items
    return (
        quicksort([x for x in rest if x < pivot])
        + [pivot]
        + quicksort([x for x in rest if x >= pivot])
    )


def heapify(items):
    n = len(items)
    for start in reversed(range(n // 2)):
        root = start
        while (child := 2 * root + 1) < n:
            if child + 1 < n and items[child] < items[child + 1]:
                child += 1
            if items[root] >= items[child]:
                break
            items[root], items[child] = items[child], items[root]
            root = child
    return items


def bubble(items):
    items = items[:]
    for end in range(len(items) - 1, 0, -1):
        swapped = False
        for i in range(end):
            if items[i] > items[i + 1]:
                items[i], items[i + 1] = items[i + 1], items[i]
                swapped = True
        if not swapped:
            break
    else:
        return items
    return items


def run(kwargs):
    data = [(i * 7919) % 101 for i in range(40)]
    return [quicksort(data), heapify(data[:]), bubble(data), sorted(data, reverse=True)]
