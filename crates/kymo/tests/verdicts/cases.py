# Programs with one known cause each: cases.py NAME.
import asyncio, gc, os, queue, subprocess, sys, threading, time

def compute(seconds=0.3):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(2000))

def idle_pool(n=4):
    work = queue.Queue()
    for _ in range(n):
        threading.Thread(target=work.get, daemon=True).start()

def collect():
    keep = [[i] for i in range(200000)]
    for _ in range(12):
        gc.collect()
    return keep

def queue_of_sleeper():
    work = queue.Queue()
    threading.Thread(target=lambda: (time.sleep(0.6), work.put(1)), daemon=True).start()
    work.get()

def turns(n=4):
    threads = [threading.Thread(target=compute, args=(0.2,)) for _ in range(n)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

def locked_sleeps(n=4):
    lock = threading.Lock()
    def hold():
        for _ in range(8):
            with lock: time.sleep(0.02)
    threads = [threading.Thread(target=hold) for _ in range(n)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

def sort():
    for _ in range(6):
        sorted(range(200000), key=lambda n: n * 7919 % 200003)

def fork_and_sleep():
    if os.fork() == 0:
        time.sleep(0.6)
        os._exit(0)
    os.wait()

case = sys.argv[1]
if case == "compute": compute()
elif case == "idle-pool": idle_pool(); compute()
elif case == "sleep": time.sleep(0.6)
elif case == "sleep-idle-pool": idle_pool(); time.sleep(0.6)
elif case == "turns": turns()
elif case == "locked-sleeps": locked_sleeps()
elif case == "sort": sort()
elif case == "collect": collect()
elif case == "queue": queue_of_sleeper()
elif case == "fork": fork_and_sleep()
elif case == "run": subprocess.run(["sleep", "0.6"])
elif case == "asyncio": asyncio.run(asyncio.sleep(0.6))
elif case == "thread": t = threading.Thread(target=compute); t.start(); t.join()
