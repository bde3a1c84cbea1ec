/* Descriptions that are wrong, made by hand, among good ones; two source files (one with OTHER)
 * that say different things of one event. */
#include "kymo_tracepoint.h"

/* Seen by both source files. */
#ifdef OTHER
KYMO_TRACEPOINT_EVENT(wrong, differs, KYMO_TP_PROTO(const char *x), KYMO_TP_ARGS(x),
                      KYMO_TP_FIELDS(kymo_field_string(x, x)), KYMO_TP_PRINT("{x}"))
#else
KYMO_TRACEPOINT_EVENT(wrong, differs, KYMO_TP_PROTO(int x), KYMO_TP_ARGS(x),
                      KYMO_TP_FIELDS(kymo_field_integer(int, x, x)), KYMO_TP_PRINT("{x}"))
#endif
KYMO_TRACEPOINT_EVENT(wrong, good, KYMO_TP_PROTO(int x), KYMO_TP_ARGS(x),
                      KYMO_TP_FIELDS(kymo_field_integer(int, x, x)), KYMO_TP_PRINT("{x}"))
KYMO_TRACEPOINT_EVENT(wrong, a_b, KYMO_TP_PROTO(int x), KYMO_TP_ARGS(x),
                      KYMO_TP_FIELDS(kymo_field_integer(int, x, x)), KYMO_TP_PRINT("{x}"))

void elsewhere(void);

#ifdef OTHER
/* The same when joined: wrong_a and b. */
KYMO_TRACEPOINT_EVENT_CLASS(wrong_a, kind, KYMO_TP_PROTO(int x), KYMO_TP_ARGS(x),
                            KYMO_TP_FIELDS(kymo_field_integer(int, y, x)), KYMO_TP_PRINT("{y}"))
#define kymo_wrong_a_b_event_ kymo_wrong_a__b_event_
#define kymo_wrong_a_b_site_ kymo_wrong_a__b_site_
#define kymo_wrong_a_b_entry_ kymo_wrong_a__b_entry_
#define kymo_wrong_a_b_tell_sdt_ kymo_wrong_a__b_tell_sdt_
#define kymo_wrong_a_b_at_ kymo_wrong_a__b_at_
#define kymo_wrong_a_b_register_ kymo_wrong_a__b_register_
#define kymo_wrong_a_b_unregister_ kymo_wrong_a__b_unregister_
#define kymo_wrong_a_b_write_p_ kymo_wrong_a__b_write_p_
KYMO_TRACEPOINT_EVENT_INSTANCE(wrong_a, kind, b)

void elsewhere(void)
{
    kymo_emit(wrong, differs, "text");
    kymo_emit(wrong, good, 2);
    kymo_emit(wrong_a, b, 3);
}
#else
#define SITE(name, ...)                                                                       \
    static const struct kymo_event name##_event = { __VA_ARGS__ };                            \
    static struct kymo_site name __attribute__((section(".probes"))) = {                      \
        &kymo_nobody_, 0, UINT32_MAX, &name##_event, NULL };                                  \
    static const struct kymo_entry name##_entry                                               \
        __attribute__((section("kymo_events"), used, aligned(16))) = { &name, NULL };
#define NAMED { "wrong", 5 }, { "made", 4 }, { "", 0 }, { NULL, 0 }, { NULL, 0 }, 1

static const struct kymo_field unknown_kind[] = { { { "x", 1 }, { 99, 4, 0, 0 }, NULL, 0 } };
static const struct kymo_field odd_size[] = { { { "x", 1 }, { 1, 3, 0, 0 }, NULL, 0 } };
static const struct kymo_field no_name[] = { { { NULL, 1 }, { 1, 4, 0, 0 }, NULL, 0 } };
static const struct kymo_field no_entries[] = { { { "x", 1 }, { 5, 4, 0, 0 }, NULL, 3 } };
static const struct kymo_field good[] = { { { "x", 1 }, { 1, 4, 0, 0 }, NULL, 0 } };
SITE(null_text, { NULL, 5 }, { "made", 4 }, { "", 0 }, { "", 0 }, { "", 0 }, 1, 6, 0, good, 1)
SITE(nameless, { "wrong", 5 }, { "", 0 }, { "", 0 }, { "", 0 }, { "", 0 }, 1, 6, 0, good, 1)
SITE(huge_text, { "x", SIZE_MAX }, { "y", 1 }, { "", 0 }, { "", 0 }, { "", 0 }, 1, 6, 0, good, 1)
SITE(odd_level, NAMED, 200, 0, good, 1)
SITE(no_fields, NAMED, 6, 0, NULL, 1)
SITE(many_fields, NAMED, 6, 0, good, 70000)
SITE(kind, NAMED, 6, 0, unknown_kind, 1)
SITE(size, NAMED, 6, 0, odd_size, 1)
SITE(field, NAMED, 6, 0, no_name, 1)
SITE(entries, NAMED, 6, 0, no_entries, 1)
static struct kymo_site no_event = { &kymo_nobody_, 0, UINT32_MAX, NULL, NULL };
static const struct kymo_entry of_no_event
    __attribute__((section("kymo_events"), used, aligned(16))) = { &no_event, NULL };
static const struct kymo_entry nobody
    __attribute__((section("kymo_events"), used, aligned(16))) = { NULL, NULL };
/* A fine one without fields, and with a name of odd characters. */
SITE(odd, { "wrong", 5 }, { "o d\"d{}\377", 8 }, { "", 0 }, { NULL, 0 }, { NULL, 0 }, 1, 6, 0, NULL, 0)

int main(void)
{
    const struct kymo_module short_one = { 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL };
    struct kymo_module other = kymo_module_;
    other.site++;
    if (kymo_abi1_enter(NULL) != -EINVAL || kymo_abi1_enter(&short_one) != -ENOSYS
        || kymo_abi1_enter(&other) != -ENOSYS || kymo_abi1_enter(&kymo_module_) != 0)
        return 1;
    kymo_emit(wrong, differs, 1);
    kymo_emit(wrong, good, 1);
    kymo_emit(wrong, a_b, 1);
    elsewhere();
    struct kymo_scratch scratch;
    memset(&scratch, 0, sizeof(scratch));
    if (kymo_enabled(wrong, good))
        kymo_abi1_record(&odd, &scratch, 0);
    /* No site that was refused is on, and it may be written to nevertheless. */
    kymo_abi1_record(&many_fields, &scratch, 8);
    kymo_abi1_record(&no_event, &scratch, SIZE_MAX);
    return kymo_enabled(wrong, differs);
}
#endif
