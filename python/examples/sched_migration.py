"""Runs of threads on another CPU than before: perf's sched-migration. Usage: ….py RECORDING"""
import sys

import kymotrace

query = """SELECT thread_name, count(*) AS runs, sum(migrated) AS migrations FROM sched_slice
           WHERE utid != 0 GROUP BY utid HAVING migrations > 0 ORDER BY migrations DESC"""
for name, runs, migrations in kymotrace.open(sys.argv[1]).sql(query):
    print(f"{migrations:6} of {runs:6} runs  {name}")
