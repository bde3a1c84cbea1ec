"""Time from wake-ups until threads ran, as a histogram of powers of two. Usage: ….py RECORDING"""
import sys
from collections import Counter

import kymotrace

delays = kymotrace.open(sys.argv[1]).table("sched_slice", ["wakeup_delay"]).column("wakeup_delay")
buckets = Counter((delay // 1000).bit_length() for delay in delays if delay is not None)
for bucket, count in sorted(buckets.items()):
    print(f"below {1 << bucket:8} us  {count:8}  {'#' * (60 * count // max(buckets.values()))}")
