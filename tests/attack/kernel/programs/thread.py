# expect: user_error language RuntimeError
# preload: threading
import threading

thread = threading.Thread(target=print)
thread.start()
thread.join()
print("REACHED")
