# expect: killed limits wall_s
# wall: 0.5
import time

time.sleep(1)
print("REACHED")
