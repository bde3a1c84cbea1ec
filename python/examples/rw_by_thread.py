"""Bytes that threads asked to read and write: perf's rw-by-pid. Usage: rw_by_thread.py RECORDING"""
import sys
from collections import Counter

import kymotrace

asked = Counter()
for event in kymotrace.open(sys.argv[1]).events("sys_enter_read", "sys_enter_write"):
    asked[event.comm, event.tid, event.name.split("_")[-1]] += event.args["count"]
for (comm, tid, call), count in asked.most_common():
    print(f"{count:12} bytes  {call:6} {comm} [{tid}]")
