"""Time in futex calls that wait, by thread: perf's futex-contention. Usage: ….py RECORDING"""
import sys
from collections import Counter

import kymotrace

began, waited = {}, Counter()
for event in kymotrace.open(sys.argv[1]).events("sys_enter_futex", "sys_exit_futex"):
    if event.name.endswith("enter_futex"):
        began[event.tid] = event.ts if event.args["op"] & 0x7F in (0, 6, 9) else None
    elif start := began.pop(event.tid, None):
        waited[event.comm, event.tid] += event.ts - start
for (comm, tid), total in waited.most_common():
    print(f"{total / 1e6:10.3f} ms  {comm} [{tid}]")
