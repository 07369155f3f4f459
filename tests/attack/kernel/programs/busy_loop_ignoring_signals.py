# expect: killed limits cpu_s
# preload: signal
# wall: 20
import signal
import time

for number in (signal.SIGXCPU, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
end = time.process_time() + 2.5
while time.process_time() < end:
    pass
print("REACHED")
