"""Time on the CPU, runs and longest run by thread: perf's task-analyzer. Usage: ….py RECORDING"""
import sys

import kymotrace

query = """SELECT thread_name, tid, sum(dur) / 1e6, count(*), max(dur) / 1e6 FROM sched_slice
           JOIN thread USING (utid) WHERE utid != 0 AND dur NOT NULL GROUP BY utid ORDER BY 3 DESC"""
for name, tid, total, runs, longest in kymotrace.open(sys.argv[1]).sql(query):
    print(f"{total:10.3f} ms in {runs:5} runs, longest {longest:8.3f} ms  {name} [{tid}]")
