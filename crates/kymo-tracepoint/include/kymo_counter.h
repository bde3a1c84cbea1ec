/* kymo_counter.h: counters and histograms for programs in C and C++, in memory that `kymo count -u`
 * reads, also after the program was killed.
 *
 * Declare them, in a header or a source file, each with a text that says what it means:
 *
 *     KYMO_COUNTER(shop, sales, "Sales.")
 *     KYMO_COUNTER_BY(shop, payments, "Sales by means of payment.")
 *     KYMO_HISTOGRAM(shop, basket_cents, "Worth of a sale.")
 *     KYMO_HISTOGRAM_BY(shop, wait_us, "Time in the queue, by till.")
 *
 * and hit them where it happens:
 *
 *     kymo_count(shop, sales);                          one more
 *     kymo_add(shop, sales, 3);                         three more
 *     kymo_count_text(shop, payments, "card");          by a text (its first 40 bytes)
 *     kymo_add_text(shop, payments, 3, "card");
 *     kymo_count_number(shop, payments, 7);             by a number
 *     kymo_add_number(shop, payments, 3, 7);
 *     kymo_sample(shop, basket_cents, 995);             a value into a histogram
 *     kymo_sample_text(shop, wait_us, 40, "till 1");
 *     kymo_sample_number(shop, wait_us, 40, 1);
 *
 * They always count, whether anybody looks or not: a hit adds to a word of the CPU it happens on.
 * A counter holds 256 keys, a histogram 64; what comes under more is counted together. They may be
 * hit in signal handlers, and before and after main. docs/c.md tells the rest.
 */
#ifndef KYMO_COUNTER_H
#define KYMO_COUNTER_H

#include "kymo_tracepoint.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What a header and the library share: version 1, which is in the names of functions. ---- */

struct kymo_counter_info {
    struct kymo_text provider, name, doc, file;
    uint32_t line;
    uint8_t kind, keyed; /* kind: 1 counter, 2 histogram */
};
struct kymo_counter_site {
    void *value, *key_values, *table;
    const struct kymo_counter_info *info;
    uint32_t id;
};
struct kymo_counter_entry { struct kymo_counter_site *site; const void *reserved; };

struct kymo_counter_module {
    uint32_t size;
    uint16_t entry, site, info;
    const struct kymo_counter_entry *start, *stop;
};

KYMO_ABI_ int kymo_abi1_enter_counters(const struct kymo_counter_module *module);
KYMO_ABI_ void kymo_abi1_leave_counters(const struct kymo_counter_module *module);
KYMO_ABI_ void kymo_abi1_add(const struct kymo_counter_site *site, uint64_t n);
KYMO_ABI_ void kymo_abi1_add_text(const struct kymo_counter_site *site, uint64_t n,
                                  const char *key, size_t len);
KYMO_ABI_ void kymo_abi1_add_number(const struct kymo_counter_site *site, uint64_t n, int64_t key);
KYMO_ABI_ void kymo_abi1_sample(const struct kymo_counter_site *site, int64_t value);
KYMO_ABI_ void kymo_abi1_sample_text(const struct kymo_counter_site *site, int64_t value,
                                     const char *key, size_t len);
KYMO_ABI_ void kymo_abi1_sample_number(const struct kymo_counter_site *site, int64_t value,
                                       int64_t key);

#ifdef KYMO_TRACEPOINT_OPTIONAL
#define KYMO_COUNTERS_ARE_THERE_ (kymo_abi1_enter_counters != NULL)
#else
#define KYMO_COUNTERS_ARE_THERE_ 1
#endif

/* The linker's limits of what this program or library declares; null if it declares nothing. */
extern const struct kymo_counter_entry __start_kymo_counters[]
    __attribute__((weak, visibility("hidden")));
extern const struct kymo_counter_entry __stop_kymo_counters[]
    __attribute__((weak, visibility("hidden")));

static const struct kymo_counter_module kymo_counter_module_ __attribute__((unused)) = {
    sizeof(struct kymo_counter_module), sizeof(struct kymo_counter_entry),
    sizeof(struct kymo_counter_site), sizeof(struct kymo_counter_info),
    __start_kymo_counters, __stop_kymo_counters
};

/* As for tracepoints: the second source file that does this does nothing. */
__attribute__((constructor(101), unused)) static void kymo_enter_counters_(void)
{
    if (KYMO_COUNTERS_ARE_THERE_)
        kymo_abi1_enter_counters(&kymo_counter_module_);
}

__attribute__((destructor(101), unused)) static void kymo_leave_counters_(void)
{
    if (KYMO_COUNTERS_ARE_THERE_)
        kymo_abi1_leave_counters(&kymo_counter_module_);
}

/* ---- For programs ---- */

/* No semicolon behind these. The same counter may be declared in several source files, which add
 * to it together. */
#define KYMO_COUNTER(provider, name, doc)                                                      \
    KYMO_COUNTER_(kymo_##provider##_##name##_counter_, #provider, #name, doc, 1, 0)
#define KYMO_COUNTER_BY(provider, name, doc)                                                   \
    KYMO_COUNTER_(kymo_##provider##_##name##_counter_by_, #provider, #name, doc, 1, 1)
#define KYMO_HISTOGRAM(provider, name, doc)                                                    \
    KYMO_COUNTER_(kymo_##provider##_##name##_histogram_, #provider, #name, doc, 2, 0)
#define KYMO_HISTOGRAM_BY(provider, name, doc)                                                 \
    KYMO_COUNTER_(kymo_##provider##_##name##_histogram_by_, #provider, #name, doc, 2, 1)

#define kymo_count(provider, name) kymo_add(provider, name, 1)
#define kymo_count_text(provider, name, key) kymo_add_text(provider, name, 1, key)
#define kymo_count_number(provider, name, key) kymo_add_number(provider, name, 1, key)
#define kymo_add(provider, name, n)                                                            \
    KYMO_HIT_(kymo_##provider##_##name##_counter_, kymo_abi1_add, n)
#define kymo_add_text(provider, name, n, key)                                                  \
    KYMO_HIT_TEXT_(kymo_##provider##_##name##_counter_by_, kymo_abi1_add_text, n, key)
#define kymo_add_number(provider, name, n, key)                                                \
    KYMO_HIT_NUMBER_(kymo_##provider##_##name##_counter_by_, kymo_abi1_add_number, n, key)
#define kymo_sample(provider, name, value)                                                     \
    KYMO_HIT_(kymo_##provider##_##name##_histogram_, kymo_abi1_sample, value)
#define kymo_sample_text(provider, name, value, key)                                           \
    KYMO_HIT_TEXT_(kymo_##provider##_##name##_histogram_by_, kymo_abi1_sample_text, value, key)
#define kymo_sample_number(provider, name, value, key)                                         \
    KYMO_HIT_NUMBER_(kymo_##provider##_##name##_histogram_by_, kymo_abi1_sample_number, value, key)

#define KYMO_COUNTER_(c, provider_, name_, doc_, kind_, keyed_)                                \
    static const struct kymo_counter_info c##info_ = {                                         \
        KYMO_TEXT_(provider_), KYMO_TEXT_(name_), KYMO_TEXT_("" doc_), KYMO_TEXT_(__FILE__),   \
        __LINE__, kind_, keyed_ };                                                             \
    static struct kymo_counter_site c##site_ __attribute__((unused)) = {                       \
        NULL, NULL, NULL, &c##info_, UINT32_MAX };                                             \
    static const struct kymo_counter_entry c##entry_                                           \
        __attribute__((section("kymo_counters"), used, aligned(16))) = { &c##site_, NULL };

#define KYMO_HIT_(c, hit, n)                                                                   \
    do {                                                                                       \
        if (KYMO_COUNTERS_ARE_THERE_)                                                          \
            hit(&c##site_, n);                                                                 \
    } while (0)
#define KYMO_HIT_TEXT_(c, hit, n, key)                                                         \
    do {                                                                                       \
        const char *kymo_key_ = (key);                                                         \
        if (KYMO_COUNTERS_ARE_THERE_)                                                          \
            hit(&c##site_, n, kymo_key_, kymo_key_ ? strlen(kymo_key_) : 0);                   \
    } while (0)
#define KYMO_HIT_NUMBER_(c, hit, n, key)                                                       \
    do {                                                                                       \
        if (KYMO_COUNTERS_ARE_THERE_)                                                          \
            hit(&c##site_, n, key);                                                            \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
