# /// stoilo-case
# idea = "new thread"
# run = "probe"
# stopped_by = "kernel"
# error = "RuntimeError"
# goal = "inside"
# preload = ["threading"]
# ///
import threading

thread = threading.Thread(target=print)
thread.start()
thread.join()
print("REACHED")
