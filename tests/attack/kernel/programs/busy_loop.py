# expect: killed limits cpu_s
# wall: 20
import time

end = time.process_time() + 2.5
while time.process_time() < end:
    pass
print("REACHED")
