"""System calls by thread: perf's syscall-counts-by-pid. Usage: ….py RECORDING"""
import sys
from collections import Counter

import kymotrace

events = kymotrace.open(sys.argv[1]).events()
calls = ((e.comm, e.tid, e.name.split("sys_enter_")[1]) for e in events if "sys_enter_" in e.name)
for (comm, tid, call), count in Counter(calls).most_common():
    print(f"{count:8}  {call:20} {comm} [{tid}]")
