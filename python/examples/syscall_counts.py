"""System calls by number of calls: perf's syscall-counts. Usage: syscall_counts.py RECORDING"""
import sys

import kymotrace

recording = kymotrace.open(sys.argv[1])
query = """SELECT replace(name, 'sys_enter_', '') AS call, count(*) AS n FROM ftrace_event
           WHERE name GLOB 'sys_enter_*' GROUP BY call ORDER BY n DESC, call"""
for call, count in recording.sql(query):
    print(f"{count:8}  {call}")
