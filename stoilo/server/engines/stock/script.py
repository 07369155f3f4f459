"""The scripts that BOINC's validator and assimilator run: ask the engine, exit as told.

Installed as ``bin/stoilo_validate``, ``bin/stoilo_compare`` and ``bin/stoilo_assimilate``
(`entry_point_text` of `script_server`); its own name says which it is. It runs once for
every question, so it needs nothing but a bare interpreter.

While the engine is away it waits. For a validator that ends after `PATIENCE_S` with
"ask again" (3). For the assimilator it does not: an exit status of 0 tells BOINC that the
result was taken and may be deleted, and any other ends BOINC's daemon; so whatever else
the engine says, it waits for a 0. It only ends with 1 when the project is being stopped,
and is called again after that, or when the project's folder is gone.
"""

import os
import socket
import sys
import time

ASSIMILATE = "stoilo_assimilate"
SOCKET = "validate.sock"
STOP_FILE = "stop_daemons"
AGAIN = 9
TAKEN = 0
LATER = 3
STOPPING = 1
PATIENCE_S = 600.0
PAUSE_S = 1.0
ANSWER_S = 3600.0


def ask(folder: str, request: bytes) -> int:
    """Return the engine's answer, `AGAIN` when there is none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
            os.chdir(folder)  # names of sockets are short, paths are not
            engine.settimeout(ANSWER_S)
            engine.connect(SOCKET)
            engine.sendall(request)
            engine.shutdown(socket.SHUT_WR)
            answer = engine.recv(8)
    except OSError:
        return AGAIN
    return int(answer) if answer.isdigit() else AGAIN


def main(program: str, arguments: list[str]) -> int:
    """Return the exit status for BOINC."""
    project = os.path.dirname(os.path.dirname(os.path.abspath(program)))
    name = os.path.basename(program)
    request = "\0".join([name, *arguments]).encode("utf-8", "replace")
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = ask(os.path.join(project, "stoilo"), request)
        if answer == TAKEN or (answer != AGAIN and name != ASSIMILATE):
            return answer
        if is_over(project):
            return STOPPING if name == ASSIMILATE else LATER
        if name != ASSIMILATE and time.monotonic() > end:
            return LATER
        time.sleep(PAUSE_S)


def is_over(project: str) -> bool:
    """Say whether the project is being stopped, or is gone."""
    stopping = os.path.exists(os.path.join(project, STOP_FILE))
    return stopping or not os.path.isdir(project)


if __name__ == "__main__":
    sys.exit(main(sys.argv[0], sys.argv[1:]))
