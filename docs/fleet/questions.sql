-- Questions that give the same rows in `kymo sql RECORDING` and over the files of `kymo export`, in
-- DuckDB, ClickHouse, DataFusion and Spark: the tables are views of v1/TABLE/*/*.parquet there.
-- Of several hosts, group by `host` and `recording_id`, too, which each file has. Rows have no
-- order but where LIMIT needs one: engines do not agree on the place of null.

-- 1. Which threads ran longest?
SELECT thread.tid, thread.name, sum(sched_slice.dur) AS ns, count(*) AS runs
FROM sched_slice JOIN thread ON sched_slice.utid = thread.utid
WHERE thread.is_idle = 0 AND sched_slice.dur IS NOT NULL
GROUP BY thread.tid, thread.name;

-- 2. How busy was each CPU?
SELECT cpu, sum(CASE WHEN utid = 0 THEN 0 ELSE dur END) AS busy_ns, sum(dur) AS all_ns
FROM sched_slice WHERE dur IS NOT NULL GROUP BY cpu;

-- 3. Wake-up delays by thread: number, sum and longest.
SELECT thread_name, count(wakeup_delay) AS wakeups, sum(wakeup_delay) AS ns, max(wakeup_delay) AS longest
FROM sched_slice WHERE wakeup_delay IS NOT NULL GROUP BY thread_name;

-- 4. The 99th percentile of wake-up delays, by nearest rank.
SELECT min(wakeup_delay) AS p99 FROM
    (SELECT wakeup_delay, row_number() OVER (ORDER BY wakeup_delay) AS place,
            count(*) OVER () AS number
     FROM sched_slice WHERE wakeup_delay IS NOT NULL) AS delays
WHERE place * 100 >= number * 99;

-- 5. The ten longest delays, with who ran and where.
SELECT ts, cpu, thread_name, wakeup_delay FROM sched_slice
WHERE wakeup_delay IS NOT NULL ORDER BY wakeup_delay DESC, ts, cpu LIMIT 10;

-- 6. Which threads were preempted?
SELECT thread_name, count(*) AS preemptions, sum(preempt_delay) AS ns
FROM sched_slice WHERE cause = 'preempted' GROUP BY thread_name;

-- 7. Migrations by thread.
SELECT thread_name, sum(migrated) AS migrations, count(*) AS runs
FROM sched_slice WHERE utid <> 0 GROUP BY thread_name HAVING sum(migrated) > 0;

-- 8. Who wakes whom?
SELECT waker.name AS waker_name, woken.name AS woken_name, count(*) AS wakeups
FROM sched_slice
JOIN thread AS woken ON sched_slice.utid = woken.utid
JOIN thread AS waker ON sched_slice.waker_utid = waker.utid
GROUP BY waker.name, woken.name;

-- 9. Time by state.
SELECT state, sum(dur) AS ns, count(*) AS intervals
FROM thread_state WHERE dur IS NOT NULL GROUP BY state;

-- 10. Threads that slept uninterruptibly, and how long at most.
SELECT thread.tid, max(thread_state.dur) AS longest
FROM thread_state JOIN thread ON thread_state.utid = thread.utid
WHERE thread_state.state = 'D' AND thread_state.dur IS NOT NULL GROUP BY thread.tid;

-- 11. States at which runs end.
SELECT end_state, count(*) AS runs FROM sched_slice GROUP BY end_state;

-- 12. Events by name.
SELECT system, name, count(*) AS events FROM ftrace_event GROUP BY system, name;

-- 13. Events by CPU and thread.
SELECT ftrace_event.cpu, thread.tid, count(*) AS events
FROM ftrace_event LEFT JOIN thread ON ftrace_event.utid = thread.utid
GROUP BY ftrace_event.cpu, thread.tid;

-- 14. Fields of events: how many values each has.
SELECT ftrace_event.name, args.key, count(*) AS number, count(DISTINCT args.display_value) AS different
FROM ftrace_event JOIN args ON ftrace_event.arg_set_id = args.arg_set_id
GROUP BY ftrace_event.name, args.key;

-- 15. The largest value of each integer field.
SELECT ftrace_event.name, args.key, max(args.int_value) AS largest, min(args.int_value) AS smallest
FROM ftrace_event JOIN args ON ftrace_event.arg_set_id = args.arg_set_id
WHERE args.int_value IS NOT NULL GROUP BY ftrace_event.name, args.key;

-- 16. Time between one event and the next of a CPU: the longest gap.
SELECT cpu, max(gap) AS longest FROM
    (SELECT cpu, ts - lag(ts) OVER (PARTITION BY cpu ORDER BY ts, id) AS gap FROM ftrace_event)
    AS gaps
WHERE gap IS NOT NULL GROUP BY cpu;

-- 17. Samples by function (the innermost of each stack).
SELECT stack_profile_frame.name, count(*) AS samples, sum(perf_sample.period) AS periods
FROM perf_sample
JOIN stack_profile_callsite ON perf_sample.callsite_id = stack_profile_callsite.id
JOIN stack_profile_frame ON stack_profile_callsite.frame_id = stack_profile_frame.id
GROUP BY stack_profile_frame.name;

-- 18. Samples by binary.
SELECT stack_profile_mapping.name, count(*) AS samples
FROM perf_sample
JOIN stack_profile_callsite ON perf_sample.callsite_id = stack_profile_callsite.id
JOIN stack_profile_frame ON stack_profile_callsite.frame_id = stack_profile_frame.id
LEFT JOIN stack_profile_mapping ON stack_profile_frame.mapping = stack_profile_mapping.id
GROUP BY stack_profile_mapping.name;

-- 19. Processes and their threads.
SELECT process.pid, process.name, count(*) AS threads
FROM process JOIN thread ON thread.upid = process.upid GROUP BY process.pid, process.name;

-- 20. Can it be trusted? Warnings by code, and whether events were lost.
SELECT recording.lossy, trust.code, trust.doubt, count(*) AS number
FROM recording LEFT JOIN trust ON trust.machine_id = recording.machine_id
GROUP BY recording.lossy, trust.code, trust.doubt;
