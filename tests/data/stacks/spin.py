import faulthandler, signal, sys, threading, time
faulthandler.register(signal.SIGRTMIN + 7, file=open("fh.txt","w"), all_threads=True, chain=False)
def waits():
    while True:
        time.sleep(3600)
threading.Thread(target=waits, name="prefetch", daemon=True).start()
def spin():
    x = 0
    while True:
        x += 1
def train():
    spin()
print("go", flush=True)
train()
