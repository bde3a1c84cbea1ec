"""Errors of system calls by thread: perf's failed-syscalls. Usage: failed_syscalls.py RECORDING"""
import sys
from collections import Counter

import kymotrace

failed = Counter()
for event in kymotrace.open(sys.argv[1]).events():
    if "sys_exit" in event.name and -4096 < event.args["ret"] < 0:
        failed[event.comm, event.tid, event.name, event.args["ret"]] += 1
for (comm, tid, name, error), count in failed.most_common():
    print(f"{count:8}  {name} = {error}  {comm} [{tid}]")
