/* LTTng-UST's tracepoints for the comparison of `cargo xtask bench ust`. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER pace
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./pace-tp.h"
#if !defined(PACE_TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define PACE_TP_H
#include <stdint.h>
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_EVENT(pace, two,
    LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, a, a)
                        lttng_ust_field_integer(uint64_t, b, b)))
LTTNG_UST_TRACEPOINT_EVENT(pace, text,
    LTTNG_UST_TP_ARGS(uint64_t, a, const char *, s),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint64_t, a, a)
                        lttng_ust_field_string(s, s)))
#endif
#include <lttng/tracepoint-event.h>
