# /// stoilo-case
# idea = "linked structures"
# run = "task"
# level = "pure"
# ///
from dataclasses import dataclass


@dataclass
class Node:
    value: int
    left: "Node | None" = None
    right: "Node | None" = None

    def insert(self, value):
        side = "left" if value < self.value else "right"
        child = getattr(self, side)
        if child is None:
            setattr(self, side, Node(value))
        else:
            child.insert(value)

    def __iter__(self):
        if self.left:
            yield from self.left
        yield self.value
        if self.right:
            yield from self.right

    def depth(self):
        return 1 + max((c.depth() for c in (self.left, self.right) if c), default=0)


class Stack:
    class _Cell:
        def __init__(self, item, below):
            self.item, self.below = item, below

    def __init__(self):
        self._top = None
        self.size = 0

    def push(self, item):
        self._top = self._Cell(item, self._top)
        self.size += 1

    def pop(self):
        cell = self._top
        self._top = cell.below
        self.size -= 1
        return cell.item


def run(kwargs):
    root = Node(50)
    for value in (30, 70, 20, 40, 60, 80, 10):
        root.insert(value)
    stack = Stack()
    for value in root:
        stack.push(value)
    return [list(root), root.depth(), [stack.pop() for _ in range(3)], stack.size]
