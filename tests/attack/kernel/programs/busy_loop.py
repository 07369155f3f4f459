# expect: killed limits cpu_s
# wall: 10
import time

end = time.process_time() + 1.5
while time.process_time() < end:
    pass
print("REACHED")
