"""Events by name and CPU: perf's event_analyzing_sample. Usage: event_counts.py RECORDING"""
import sys

import kymotrace

query = """SELECT system || ':' || name, cpu, count(*) AS n FROM ftrace_event
           GROUP BY 1, 2 ORDER BY n DESC, 1, 2"""
for name, cpu, count in kymotrace.open(sys.argv[1]).sql(query):
    print(f"{count:8}  CPU {cpu:3}  {name}")
