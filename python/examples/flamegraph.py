"""Samples as folded stacks, for flamegraph.pl and others: perf's flamegraph. Usage: ….py RECORDING"""
import sys

import kymotrace

query = """SELECT coalesce(thread.name, '?'), stack(callsite_id), count(*) FROM perf_sample
           LEFT JOIN thread USING (utid) GROUP BY 1, 2"""
for comm, stack, count in kymotrace.open(sys.argv[1]).sql(query):
    print(";".join([comm, *reversed((stack or "?").split(";"))]), count)
