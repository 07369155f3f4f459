# /// stoilo-case
# idea = "state machine"
# run = "task"
# level = "pure"
# ///
from enum import Enum, auto


class State(Enum):
    IDLE = auto()
    RUNNING = auto()
    DONE = auto()


class Machine:
    transitions = {
        (State.IDLE, "start"): State.RUNNING,
        (State.RUNNING, "stop"): State.DONE,
    }

    def __init__(self):
        self.state = State.IDLE
        self._history = [self.state]

    def fire(self, event):
        try:
            self.state = self.transitions[self.state, event]
        except KeyError as error:
            raise RuntimeError(f"bad event {event}") from error
        self._history.append(self.state)

    @property
    def history(self):
        return [state.name for state in self._history]


def run(kwargs):
    machine = Machine()
    machine.fire("start")
    try:
        machine.fire("start")
    except RuntimeError as error:
        message = str(error)
        cause = type(error.__cause__).__name__
    machine.fire("stop")
    return [machine.history, message, cause]
