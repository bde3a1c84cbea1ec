/* kymo_tracepoint.h: static tracepoints for programs in C and C++.
 *
 * Declare an event, in a header or a source file, as the kernel's TRACE_EVENT or LTTng's
 * TRACEPOINT_EVENT do: prototype, arguments, stored fields and how they come from the arguments,
 * and how it is printed:
 *
 *     KYMO_TRACEPOINT_ENUM(shop, payment, KYMO_TP_ENUM_VALUES(
 *         kymo_enum_value("Cash", PAID_CASH), kymo_enum_range("Card", PAID_CARD, PAID_CARD + 9)))
 *
 *     KYMO_TRACEPOINT_EVENT(
 *         shop, sale,
 *         KYMO_TP_PROTO(uint64_t id, const char *customer, int cents, enum payment how),
 *         KYMO_TP_ARGS(id, customer, cents, how),
 *         KYMO_TP_FIELDS(
 *             kymo_field_integer(uint64_t, id, id),
 *             kymo_field_string(customer, customer),
 *             kymo_field_float(double, euros, cents / 100.0),
 *             kymo_field_enum(shop, payment, uint8_t, payment, how)),
 *         KYMO_TP_PRINT("sale {id} to {customer}: {euros} EUR by {payment}"),
 *         KYMO_TP_LEVEL(KYMO_INFO),
 *         KYMO_TP_CONDITION(cents != 0),
 *         KYMO_TP_DOC("Something has been sold."))
 *
 * and hit it where it happens:
 *
 *     kymo_emit(shop, sale, 1, name, 995, PAID_CASH);
 *
 * The arguments are evaluated only while a session records the event: until then it costs two loads and a
 * branch. docs/c.md tells all of it: types of fields, classes, callbacks, how to build, what
 * wrong use does. Needs GNU C11 or C++17 (gcc, clang; -std=c11 will do) on 64-bit Linux, and is
 * clean under -Wall -Wextra -Wpedantic. Names that end in an underscore are not for programs.
 *
 * With KYMO_TRACEPOINT_OPTIONAL defined before it is included the implementation need not be
 * there when the program starts: then nothing is traced.
 */
#ifndef KYMO_TRACEPOINT_H
#define KYMO_TRACEPOINT_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What a header and the library share: version 1, which is in the names of functions. ---- */

enum kymo_level {
    KYMO_EMERGENCY, KYMO_ALERT, KYMO_CRITICAL, KYMO_ERROR, KYMO_WARNING, KYMO_NOTICE, KYMO_INFO,
    KYMO_DEBUG_SYSTEM, KYMO_DEBUG_PROGRAM, KYMO_DEBUG_PROCESS, KYMO_DEBUG_MODULE,
    KYMO_DEBUG_UNIT, KYMO_DEBUG_FUNCTION, KYMO_DEBUG_LINE, KYMO_DEBUG
};

struct kymo_text { const char *start; size_t len; };
/* kind: 1 integer, 2 float, 3 boolean, 4 text, 5 enum, 6 array, 7 sequence, 8 symbol; flags:
 * 1 signed, 2 hexadecimal, 4 floats */
struct kymo_shape { uint8_t kind, size, flags; uint32_t count; };
struct kymo_enumerator { int64_t low, high; struct kymo_text name; };
struct kymo_field {
    struct kymo_text name;
    struct kymo_shape shape;
    const struct kymo_enumerator *entries;
    size_t entry_count;
};
struct kymo_event {
    struct kymo_text provider, name, format, doc, file;
    uint32_t line;
    uint8_t level, flags;
    const struct kymo_field *fields;
    size_t field_count;
};
struct kymo_site {
    const uint64_t *enabled;
    uint32_t listeners; /* lower half: the SDT semaphore; upper half: how many callbacks */
    uint32_t id;
    const struct kymo_event *event;
    void *callbacks;
};
struct kymo_entry { struct kymo_site *site; const struct kymo_event *event; };

/* Room for an event: headroom, payload, slack. */
#define KYMO_HEADROOM_ 16
#define KYMO_SMALL_ 480
struct kymo_scratch {
    unsigned char headroom[KYMO_HEADROOM_], payload[KYMO_SMALL_], slack[8];
    uint64_t rest;
} __attribute__((aligned(16)));

typedef void (*kymo_probe)(void);
struct kymo_call { kymo_probe probe; void *data; };
struct kymo_calls { const struct kymo_call *calls; size_t count, turn; };

struct kymo_module {
    uint32_t size;
    uint16_t entry, site, event, field, enumerator, scratch, headroom, small;
    uint32_t calls;
    const struct kymo_entry *start, *stop;
};

#ifdef KYMO_TRACEPOINT_OPTIONAL
#define KYMO_ABI_ __attribute__((weak))
#define KYMO_IS_THERE_ (kymo_abi1_enter != NULL)
#else
#define KYMO_ABI_
#define KYMO_IS_THERE_ 1
#endif

KYMO_ABI_ int kymo_abi1_enter(const struct kymo_module *module);
KYMO_ABI_ void kymo_abi1_leave(const struct kymo_module *module);
KYMO_ABI_ void kymo_abi1_record(const struct kymo_site *site, struct kymo_scratch *scratch,
                                size_t len);
KYMO_ABI_ void kymo_abi1_record_large(const struct kymo_site *site, size_t len,
                                      void (*put)(const void *stored, unsigned char *to),
                                      const void *stored);
KYMO_ABI_ int kymo_abi1_register(struct kymo_site *site, kymo_probe probe, void *data);
KYMO_ABI_ int kymo_abi1_unregister(struct kymo_site *site, kymo_probe probe, void *data);
KYMO_ABI_ int kymo_abi1_synchronize(void);
KYMO_ABI_ void kymo_abi1_calls_begin(const struct kymo_site *site, struct kymo_calls *calls);
KYMO_ABI_ void kymo_abi1_calls_end(const struct kymo_calls *calls);

/* The linker's limits of what this program or library declares; null if it declares nothing. */
extern const struct kymo_entry __start_kymo_events[]
    __attribute__((weak, visibility("hidden")));
extern const struct kymo_entry __stop_kymo_events[]
    __attribute__((weak, visibility("hidden")));

static const struct kymo_module kymo_module_ __attribute__((unused)) = {
    sizeof(struct kymo_module), sizeof(struct kymo_entry), sizeof(struct kymo_site),
    sizeof(struct kymo_event), sizeof(struct kymo_field), sizeof(struct kymo_enumerator),
    sizeof(struct kymo_scratch), KYMO_HEADROOM_, KYMO_SMALL_, sizeof(struct kymo_calls),
    __start_kymo_events, __stop_kymo_events
};

/* Each source file of a program or library does this; the second time does nothing. Before
 * constructors without a priority, and behind such destructors: they may have events. */
__attribute__((constructor(101), unused)) static void kymo_enter_(void)
{
    if (KYMO_IS_THERE_)
        kymo_abi1_enter(&kymo_module_);
}

__attribute__((destructor(101), unused)) static void kymo_leave_(void)
{
    if (KYMO_IS_THERE_)
        kymo_abi1_leave(&kymo_module_);
}

/* What sites look at before they are entered. */
static const uint64_t kymo_nobody_ __attribute__((unused)) = 0;

/* ---- For programs ---- */

/* Hits a tracepoint: kymo_emit(provider, name, arguments…). */
#define kymo_emit(provider, ...) KYMO_EMIT_(provider, __VA_ARGS__, 0)

/* Whether anybody listens. */
#define kymo_enabled(provider, name)                                                           \
    __builtin_expect(                                                                          \
        (*(const volatile uint64_t *)                                                          \
             *(const uint64_t *volatile *)&kymo_##provider##_##name##_site_.enabled            \
         | *(volatile uint32_t *)&kymo_##provider##_##name##_site_.listeners) != 0, 0)

/* Calls probe(data, arguments…) whenever the tracepoint is hit and its condition holds. Zero, or
 * -EEXIST (this probe with this data is registered), -ENOSPC (1024 are), -EINVAL (null), -ENOSYS
 * (the implementation is not there). */
#define kymo_register(provider, name, probe, data)                                             \
    kymo_##provider##_##name##_register_(probe, data)

/* Takes a callback off; calls that have begun go on to their end. Zero or -ENOENT, -EINVAL,
 * -ENOSYS. */
#define kymo_unregister(provider, name, probe, data)                                           \
    kymo_##provider##_##name##_unregister_(probe, data)

/* Waits until no call is under way of a callback that was taken off before: then what belongs to
 * it may go. Zero, or -EDEADLK in a callback. */
static inline int kymo_synchronize(void)
{
    return KYMO_IS_THERE_ ? kymo_abi1_synchronize() : -ENOSYS;
}

/* An event: KYMO_TP_PROTO, KYMO_TP_ARGS, KYMO_TP_FIELDS, KYMO_TP_PRINT and options. Of a header
 * that several source files include there is one tracepoint in a program or library. */
#define KYMO_TRACEPOINT_EVENT(provider, name, proto, args, fields, ...)                        \
    KYMO_CLASS_(kymo_##provider##_##name##_, proto, args, fields, (, __VA_ARGS__))             \
    KYMO_INSTANCE_(kymo_##provider##_##name##_, kymo_##provider##_##name##_, #provider,        \
                   #name, (, __VA_ARGS__))

/* What several events share, and each of them: KYMO_TP_DOC and KYMO_TP_LEVEL may follow. */
#define KYMO_TRACEPOINT_EVENT_CLASS(provider, class_, proto, args, fields, ...)                \
    KYMO_CLASS_(kymo_##provider##_##class_##_, proto, args, fields, (, __VA_ARGS__))
#define KYMO_TRACEPOINT_EVENT_INSTANCE(provider, class_, ...)                                  \
    KYMO_INSTANCE_OF_(kymo_##provider##_##class_##_, provider, __VA_ARGS__, )

#define KYMO_TP_PROTO(...) KYMO_LIST_(__VA_ARGS__)
#define KYMO_TP_ARGS(...) KYMO_LIST_(__VA_ARGS__)
#define KYMO_TP_FIELDS(...) (, __VA_ARGS__)
#define KYMO_TP_PRINT(...) (kymo_print, __VA_ARGS__)
#define KYMO_TP_LEVEL(level) (kymo_level, level)
#define KYMO_TP_DOC(...) (kymo_doc, __VA_ARGS__)
#define KYMO_TP_CONDITION(...) (kymo_when, __VA_ARGS__)

/* Fields, at most 64: kymo_field_TYPE([C type,] name, value). The first 24 are arguments of the
 * SDT marker: floats as their bits, texts, arrays and sequences as addresses. */
#define kymo_field_integer(type, name, value) (kymo_int, #name, kymo_v_##name, type, 0, value)
#define kymo_field_integer_hex(type, name, value)                                              \
    (kymo_int, #name, kymo_v_##name, type, 2, value)
#define kymo_field_float(type, name, value) (kymo_float, #name, kymo_v_##name, type, value)
#define kymo_field_bool(name, value) (kymo_bool, #name, kymo_v_##name, value)
/* A text up to its NUL; (null) for a null pointer. */
#define kymo_field_string(name, value) (kymo_string, #name, kymo_v_##name, value)
/* A text of so many bytes, or up to a NUL in it. */
#define kymo_field_text(name, start, len) (kymo_text, #name, kymo_v_##name, start, len)
#define kymo_field_enum(provider, enumeration, type, name, value)                              \
    (kymo_enum, #name, kymo_v_##name, type, kymo_##provider##_##enumeration##_values_, value)
/* As many elements as a constant says, or a value: integers or floats. */
#define kymo_field_array(type, name, start, count)                                             \
    (kymo_array, #name, kymo_v_##name, type, start, count)
#define kymo_field_sequence(type, name, start, count)                                          \
    (kymo_sequence, #name, kymo_v_##name, type, start, count)
#define kymo_field_bytes(name, start, count)                                                   \
    (kymo_sequence, #name, kymo_v_##name, unsigned char,                                       \
     ((const unsigned char *)(const void *)(start)), count)
/* An address in the program, shown as the function it lies in. */
#define kymo_field_symbol(name, value) (kymo_symbol, #name, kymo_v_##name, value)

/* Names of values, at most 64; of a longer LIST(V) made of V(name, low, high) any number. */
#define KYMO_TRACEPOINT_ENUM(provider, name, values)                                           \
    KYMO_ENUM_(kymo_##provider##_##name##_values_, KYMO_EACH_(KYMO_ENUM_VALUE_, values))
#define KYMO_TRACEPOINT_ENUM_LIST(provider, name, LIST)                                        \
    KYMO_ENUM_(kymo_##provider##_##name##_values_, LIST(KYMO_ENUM_ENTRY_))
#define KYMO_TP_ENUM_VALUES(...) (, __VA_ARGS__)
#define kymo_enum_value(name, value) (kymo_value, name, value, value)
#define kymo_enum_range(name, low, high) (kymo_value, name, low, high)

/* The short form: arguments are stored as they are.
 *     #define SALE_FIELDS(F) F(u64, id) F(str, customer) F(f64, euros)
 *     KYMO_TRACEPOINT(shop, sale, KYMO_INFO, "sale {id} to {customer}", SALE_FIELDS)
 * Types: u8 u16 u32 u64 i8 i16 i32 i64 x32 x64 (hexadecimal) f32 f64 boolean str (const char *)
 * sym (const void *) bytes (given as kymo_bytes(start, count)). */
#define KYMO_TRACEPOINT(provider, name, level, format, FIELDS)                                 \
    KYMO_CLASS_(kymo_##provider##_##name##_, (FIELDS(KYMO_SHORT_PROTO_)),                      \
                (FIELDS(KYMO_SHORT_ARG_)), (FIELDS(KYMO_SHORT_FIELD_)),                        \
                (, (kymo_print, format), (kymo_level, level)))                                 \
    KYMO_INSTANCE_(kymo_##provider##_##name##_, kymo_##provider##_##name##_, #provider,        \
                   #name, (, (kymo_level, level)))

typedef uint8_t kymo_u8_t; typedef uint16_t kymo_u16_t;
typedef uint32_t kymo_u32_t; typedef uint64_t kymo_u64_t;
typedef int8_t kymo_i8_t; typedef int16_t kymo_i16_t;
typedef int32_t kymo_i32_t; typedef int64_t kymo_i64_t;
typedef uint32_t kymo_x32_t; typedef uint64_t kymo_x64_t;
typedef float kymo_f32_t; typedef double kymo_f64_t;
#ifdef __cplusplus
typedef bool kymo_boolean_t;
#else
typedef _Bool kymo_boolean_t;
#endif
typedef const char *kymo_str_t;
typedef const void *kymo_sym_t;
typedef struct { const void *start; uint32_t count; } kymo_bytes_t;

static inline kymo_bytes_t kymo_bytes(const void *start, uint32_t count)
{
    kymo_bytes_t bytes = { start, start ? count : 0 };
    return bytes;
}

#define KYMO_SHORT_PROTO_(type, name) , kymo_##type##_t name
#define KYMO_SHORT_ARG_(type, name) , name
#define KYMO_SHORT_FIELD_(type, name) , KYMO_SHORT_##type(name)
#define KYMO_SHORT_u8(name) kymo_field_integer(uint8_t, name, name)
#define KYMO_SHORT_u16(name) kymo_field_integer(uint16_t, name, name)
#define KYMO_SHORT_u32(name) kymo_field_integer(uint32_t, name, name)
#define KYMO_SHORT_u64(name) kymo_field_integer(uint64_t, name, name)
#define KYMO_SHORT_i8(name) kymo_field_integer(int8_t, name, name)
#define KYMO_SHORT_i16(name) kymo_field_integer(int16_t, name, name)
#define KYMO_SHORT_i32(name) kymo_field_integer(int32_t, name, name)
#define KYMO_SHORT_i64(name) kymo_field_integer(int64_t, name, name)
#define KYMO_SHORT_x32(name) kymo_field_integer_hex(uint32_t, name, name)
#define KYMO_SHORT_x64(name) kymo_field_integer_hex(uint64_t, name, name)
#define KYMO_SHORT_f32(name) kymo_field_float(float, name, name)
#define KYMO_SHORT_f64(name) kymo_field_float(double, name, name)
#define KYMO_SHORT_boolean(name) kymo_field_bool(name, name)
#define KYMO_SHORT_str(name) kymo_field_string(name, name)
#define KYMO_SHORT_sym(name) kymo_field_symbol(name, name)
#define KYMO_SHORT_bytes(name) kymo_field_bytes(name, name.start, name.count)

/* ---- What values become ---- */

struct kymo_string_ { const char *start; size_t len; };

static inline struct kymo_string_ kymo_string_(const char *text)
{
    struct kymo_string_ string = { text ? text : "(null)", 6 };
    if (text)
        string.len = strlen(text);
    return string;
}

static inline struct kymo_string_ kymo_counted_(const char *start, size_t len)
{
    struct kymo_string_ string = { start, 0 };
    if (start && len) {
        const void *nul = memchr(start, 0, len);
        string.len = nul ? (size_t)((const char *)nul - start) : len;
    }
    return string;
}

/* Limit of elements whose size in bytes can be represented; no ring can hold more. */
static inline uint32_t kymo_elements_(const void *start, size_t count, size_t size)
{
    const size_t most = UINT32_MAX / size;
    return start ? (uint32_t)(count < most ? count : most) : 0;
}

static inline unsigned char *kymo_put_(unsigned char *to, const void *from, size_t len)
{
    if (!from)
        memset(to, 0, len);
    else if (len)
        memcpy(to, from, len);
    return to + len;
}

/* Lengths are taken once, and the text may have become shorter meanwhile. */
static inline unsigned char *kymo_put_string_(unsigned char *to, struct kymo_string_ string)
{
    unsigned char *end = kymo_put_(to, string.start, string.len), *nul;
    *end = 0;
    while ((nul = (unsigned char *)memchr(to, 0, (size_t)(end - to))) != NULL)
        *nul = '?';
    return end + 1;
}

static inline uint64_t kymo_bits_(const void *from, size_t len)
{
    uint64_t bits = 0;
    memcpy(&bits, from, len);
    return bits;
}

/* A text with a NUL behind it for tracers, cut to what room there is. */
struct kymo_room_ { char *at, *end; };

static inline uint64_t kymo_told_(struct kymo_room_ *room, struct kymo_string_ string)
{
    const size_t most = (size_t)(room->end - room->at) - 1;
    const size_t len = string.len < most ? string.len : most;
    char *start = room->at;
    kymo_put_((unsigned char *)start, string.start, len);
    start[len] = 0;
    room->at += len < most ? len + 1 : len;
    return (uint64_t)(uintptr_t)start;
}

/* ---- Lists: a tuple with a comma in front, (, a, b), so that nothing is () ---- */

#define KYMO_CAT_(a, b) KYMO_CAT_I_(a, b)
#define KYMO_CAT_I_(a, b) a##b
#define KYMO_OPEN_(...) __VA_ARGS__
#define KYMO_HEAD_(a, ...) a
#define KYMO_TAIL_(a, ...) __VA_ARGS__
#define KYMO_SECOND_(...) KYMO_SECOND_I_(__VA_ARGS__)
#define KYMO_SECOND_I_(a, b, ...) b
#define KYMO_IF_0(...)
#define KYMO_IF_1(...) __VA_ARGS__
#define KYMO_IS_TUPLE_(x) KYMO_SECOND_(KYMO_IS_TUPLE_I_ x, 0, ~)
#define KYMO_IS_TUPLE_I_(...) ~, 1

/* What is given to KYMO_TP_PROTO and KYMO_TP_ARGS; nothing, or void, is the empty list. */
#define KYMO_LIST_(...) KYMO_CAT_(KYMO_LIST_, KYMO_IS_NONE_(__VA_ARGS__, ~))(__VA_ARGS__)
#define KYMO_LIST_0(...) (, __VA_ARGS__)
#define KYMO_LIST_1(...) ()
#define KYMO_IS_NONE_(...) KYMO_SECOND_(KYMO_IS_NONE_I_(__VA_ARGS__), 0, ~)
#define KYMO_IS_NONE_I_(first, ...) KYMO_NONE_##first ()
#define KYMO_NONE_ KYMO_NONE_I_
#define KYMO_NONE_void KYMO_NONE_I_
#define KYMO_NONE_I_() ~, 1

/* m(n, k, parts of the tuple…) for each tuple of a list of n; k counts down to 1. */
#define KYMO_EACH_(m, list) KYMO_EACH_X_(m, KYMO_COUNT_ list, KYMO_OPEN_ list, ~)
#define KYMO_EACH_X_(...) KYMO_EACH_I_(__VA_ARGS__)
#define KYMO_EACH_I_(m, n, lead, ...) KYMO_CAT_(KYMO_EACH_, n)(m, n, __VA_ARGS__)
#define KYMO_DO_(m, n, k, tuple) KYMO_DO_I_(m, n, k, KYMO_OPEN_ tuple)
#define KYMO_DO_I_(m, ...) m(__VA_ARGS__)
#define KYMO_COUNT_I_(kymo_l, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14,     \
    a15, a16, a17, a18, a19, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31,       \
    a32, a33, a34, a35, a36, a37, a38, a39, a40, a41, a42, a43, a44, a45, a46, a47, a48,       \
    a49, a50, a51, a52, a53, a54, a55, a56, a57, a58, a59, a60, a61, a62, a63, a64, a65,       \
    a66, a67, a68, a69, a70, a71, a72, a73, a74, a75, a76, a77, a78, a79, a80, a81, a82,       \
    a83, a84, a85, a86, a87, a88, a89, a90, a91, a92, a93, a94, a95, a96, n, ...) n
#define KYMO_COUNT_(...)                                                                       \
    KYMO_COUNT_I_(__VA_ARGS__, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_,                 \
    KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_,            \
    KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_,            \
    KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_,            \
    KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_,            \
    KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_,            \
    KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, KYMO_TOO_MANY_, 64, 63, 62, 61, 60, 59,    \
    58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37,    \
    36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15,    \
    14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, ~)
#define KYMO_EACH_0(m, n, ...)
#define KYMO_EACH_1(m, n, x, ...) KYMO_CAT_(KYMO_IF_, KYMO_IS_TUPLE_(x))(KYMO_DO_(m, n, 1, x))
#define KYMO_EACH_2(m, n, x, ...) KYMO_DO_(m, n, 2, x) KYMO_EACH_1(m, n, __VA_ARGS__)
#define KYMO_EACH_3(m, n, x, ...) KYMO_DO_(m, n, 3, x) KYMO_EACH_2(m, n, __VA_ARGS__)
#define KYMO_EACH_4(m, n, x, ...) KYMO_DO_(m, n, 4, x) KYMO_EACH_3(m, n, __VA_ARGS__)
#define KYMO_EACH_5(m, n, x, ...) KYMO_DO_(m, n, 5, x) KYMO_EACH_4(m, n, __VA_ARGS__)
#define KYMO_EACH_6(m, n, x, ...) KYMO_DO_(m, n, 6, x) KYMO_EACH_5(m, n, __VA_ARGS__)
#define KYMO_EACH_7(m, n, x, ...) KYMO_DO_(m, n, 7, x) KYMO_EACH_6(m, n, __VA_ARGS__)
#define KYMO_EACH_8(m, n, x, ...) KYMO_DO_(m, n, 8, x) KYMO_EACH_7(m, n, __VA_ARGS__)
#define KYMO_EACH_9(m, n, x, ...) KYMO_DO_(m, n, 9, x) KYMO_EACH_8(m, n, __VA_ARGS__)
#define KYMO_EACH_10(m, n, x, ...) KYMO_DO_(m, n, 10, x) KYMO_EACH_9(m, n, __VA_ARGS__)
#define KYMO_EACH_11(m, n, x, ...) KYMO_DO_(m, n, 11, x) KYMO_EACH_10(m, n, __VA_ARGS__)
#define KYMO_EACH_12(m, n, x, ...) KYMO_DO_(m, n, 12, x) KYMO_EACH_11(m, n, __VA_ARGS__)
#define KYMO_EACH_13(m, n, x, ...) KYMO_DO_(m, n, 13, x) KYMO_EACH_12(m, n, __VA_ARGS__)
#define KYMO_EACH_14(m, n, x, ...) KYMO_DO_(m, n, 14, x) KYMO_EACH_13(m, n, __VA_ARGS__)
#define KYMO_EACH_15(m, n, x, ...) KYMO_DO_(m, n, 15, x) KYMO_EACH_14(m, n, __VA_ARGS__)
#define KYMO_EACH_16(m, n, x, ...) KYMO_DO_(m, n, 16, x) KYMO_EACH_15(m, n, __VA_ARGS__)
#define KYMO_EACH_17(m, n, x, ...) KYMO_DO_(m, n, 17, x) KYMO_EACH_16(m, n, __VA_ARGS__)
#define KYMO_EACH_18(m, n, x, ...) KYMO_DO_(m, n, 18, x) KYMO_EACH_17(m, n, __VA_ARGS__)
#define KYMO_EACH_19(m, n, x, ...) KYMO_DO_(m, n, 19, x) KYMO_EACH_18(m, n, __VA_ARGS__)
#define KYMO_EACH_20(m, n, x, ...) KYMO_DO_(m, n, 20, x) KYMO_EACH_19(m, n, __VA_ARGS__)
#define KYMO_EACH_21(m, n, x, ...) KYMO_DO_(m, n, 21, x) KYMO_EACH_20(m, n, __VA_ARGS__)
#define KYMO_EACH_22(m, n, x, ...) KYMO_DO_(m, n, 22, x) KYMO_EACH_21(m, n, __VA_ARGS__)
#define KYMO_EACH_23(m, n, x, ...) KYMO_DO_(m, n, 23, x) KYMO_EACH_22(m, n, __VA_ARGS__)
#define KYMO_EACH_24(m, n, x, ...) KYMO_DO_(m, n, 24, x) KYMO_EACH_23(m, n, __VA_ARGS__)
#define KYMO_EACH_25(m, n, x, ...) KYMO_DO_(m, n, 25, x) KYMO_EACH_24(m, n, __VA_ARGS__)
#define KYMO_EACH_26(m, n, x, ...) KYMO_DO_(m, n, 26, x) KYMO_EACH_25(m, n, __VA_ARGS__)
#define KYMO_EACH_27(m, n, x, ...) KYMO_DO_(m, n, 27, x) KYMO_EACH_26(m, n, __VA_ARGS__)
#define KYMO_EACH_28(m, n, x, ...) KYMO_DO_(m, n, 28, x) KYMO_EACH_27(m, n, __VA_ARGS__)
#define KYMO_EACH_29(m, n, x, ...) KYMO_DO_(m, n, 29, x) KYMO_EACH_28(m, n, __VA_ARGS__)
#define KYMO_EACH_30(m, n, x, ...) KYMO_DO_(m, n, 30, x) KYMO_EACH_29(m, n, __VA_ARGS__)
#define KYMO_EACH_31(m, n, x, ...) KYMO_DO_(m, n, 31, x) KYMO_EACH_30(m, n, __VA_ARGS__)
#define KYMO_EACH_32(m, n, x, ...) KYMO_DO_(m, n, 32, x) KYMO_EACH_31(m, n, __VA_ARGS__)
#define KYMO_EACH_33(m, n, x, ...) KYMO_DO_(m, n, 33, x) KYMO_EACH_32(m, n, __VA_ARGS__)
#define KYMO_EACH_34(m, n, x, ...) KYMO_DO_(m, n, 34, x) KYMO_EACH_33(m, n, __VA_ARGS__)
#define KYMO_EACH_35(m, n, x, ...) KYMO_DO_(m, n, 35, x) KYMO_EACH_34(m, n, __VA_ARGS__)
#define KYMO_EACH_36(m, n, x, ...) KYMO_DO_(m, n, 36, x) KYMO_EACH_35(m, n, __VA_ARGS__)
#define KYMO_EACH_37(m, n, x, ...) KYMO_DO_(m, n, 37, x) KYMO_EACH_36(m, n, __VA_ARGS__)
#define KYMO_EACH_38(m, n, x, ...) KYMO_DO_(m, n, 38, x) KYMO_EACH_37(m, n, __VA_ARGS__)
#define KYMO_EACH_39(m, n, x, ...) KYMO_DO_(m, n, 39, x) KYMO_EACH_38(m, n, __VA_ARGS__)
#define KYMO_EACH_40(m, n, x, ...) KYMO_DO_(m, n, 40, x) KYMO_EACH_39(m, n, __VA_ARGS__)
#define KYMO_EACH_41(m, n, x, ...) KYMO_DO_(m, n, 41, x) KYMO_EACH_40(m, n, __VA_ARGS__)
#define KYMO_EACH_42(m, n, x, ...) KYMO_DO_(m, n, 42, x) KYMO_EACH_41(m, n, __VA_ARGS__)
#define KYMO_EACH_43(m, n, x, ...) KYMO_DO_(m, n, 43, x) KYMO_EACH_42(m, n, __VA_ARGS__)
#define KYMO_EACH_44(m, n, x, ...) KYMO_DO_(m, n, 44, x) KYMO_EACH_43(m, n, __VA_ARGS__)
#define KYMO_EACH_45(m, n, x, ...) KYMO_DO_(m, n, 45, x) KYMO_EACH_44(m, n, __VA_ARGS__)
#define KYMO_EACH_46(m, n, x, ...) KYMO_DO_(m, n, 46, x) KYMO_EACH_45(m, n, __VA_ARGS__)
#define KYMO_EACH_47(m, n, x, ...) KYMO_DO_(m, n, 47, x) KYMO_EACH_46(m, n, __VA_ARGS__)
#define KYMO_EACH_48(m, n, x, ...) KYMO_DO_(m, n, 48, x) KYMO_EACH_47(m, n, __VA_ARGS__)
#define KYMO_EACH_49(m, n, x, ...) KYMO_DO_(m, n, 49, x) KYMO_EACH_48(m, n, __VA_ARGS__)
#define KYMO_EACH_50(m, n, x, ...) KYMO_DO_(m, n, 50, x) KYMO_EACH_49(m, n, __VA_ARGS__)
#define KYMO_EACH_51(m, n, x, ...) KYMO_DO_(m, n, 51, x) KYMO_EACH_50(m, n, __VA_ARGS__)
#define KYMO_EACH_52(m, n, x, ...) KYMO_DO_(m, n, 52, x) KYMO_EACH_51(m, n, __VA_ARGS__)
#define KYMO_EACH_53(m, n, x, ...) KYMO_DO_(m, n, 53, x) KYMO_EACH_52(m, n, __VA_ARGS__)
#define KYMO_EACH_54(m, n, x, ...) KYMO_DO_(m, n, 54, x) KYMO_EACH_53(m, n, __VA_ARGS__)
#define KYMO_EACH_55(m, n, x, ...) KYMO_DO_(m, n, 55, x) KYMO_EACH_54(m, n, __VA_ARGS__)
#define KYMO_EACH_56(m, n, x, ...) KYMO_DO_(m, n, 56, x) KYMO_EACH_55(m, n, __VA_ARGS__)
#define KYMO_EACH_57(m, n, x, ...) KYMO_DO_(m, n, 57, x) KYMO_EACH_56(m, n, __VA_ARGS__)
#define KYMO_EACH_58(m, n, x, ...) KYMO_DO_(m, n, 58, x) KYMO_EACH_57(m, n, __VA_ARGS__)
#define KYMO_EACH_59(m, n, x, ...) KYMO_DO_(m, n, 59, x) KYMO_EACH_58(m, n, __VA_ARGS__)
#define KYMO_EACH_60(m, n, x, ...) KYMO_DO_(m, n, 60, x) KYMO_EACH_59(m, n, __VA_ARGS__)
#define KYMO_EACH_61(m, n, x, ...) KYMO_DO_(m, n, 61, x) KYMO_EACH_60(m, n, __VA_ARGS__)
#define KYMO_EACH_62(m, n, x, ...) KYMO_DO_(m, n, 62, x) KYMO_EACH_61(m, n, __VA_ARGS__)
#define KYMO_EACH_63(m, n, x, ...) KYMO_DO_(m, n, 63, x) KYMO_EACH_62(m, n, __VA_ARGS__)
#define KYMO_EACH_64(m, n, x, ...) KYMO_DO_(m, n, 64, x) KYMO_EACH_63(m, n, __VA_ARGS__)

/* ---- Enums ---- */

#ifdef __cplusplus
#define KYMO_ASSERT_(condition, text) static_assert(condition, text);
/* Else it would not leave an unnamed namespace. */
#define KYMO_EXTERN_ extern "C"
#else
#define KYMO_EXTERN_ extern
#define KYMO_ASSERT_(condition, text) _Static_assert(condition, text);
#endif
#define KYMO_TEXT_(t) { t, sizeof(t) - 1 }
#define KYMO_COUNT_OF_(array) (sizeof(array) / sizeof((array)[0]) - 1)

#define KYMO_ENUM_VALUE_(n, k, kind, name, low, high) KYMO_ENUM_ENTRY_(name, low, high)
#define KYMO_ENUM_ENTRY_(name, low, high) { (int64_t)(low), (int64_t)(high), KYMO_TEXT_(name) },
#define KYMO_ENUM_(values_, ...)                                                               \
    static const struct kymo_enumerator values_[] __attribute__((unused)) = {                  \
        __VA_ARGS__ { 0, 0, KYMO_TEXT_("") } };

/* ---- Fields: how they are described, kept, measured, written, and described to tracers ---- */

#define KYMO_SIGN_(type) ((type)-1 < (type)1)
#define KYMO_IS_NUMBER_(type)                                                                  \
    (sizeof(type) == 1 || sizeof(type) == 2 || sizeof(type) == 4 || sizeof(type) == 8)
#define KYMO_FLOATS_(type) ((type)1.5 > (type)1)
/* Three bits: log2 of the size, and the sign. */
#define KYMO_SDT_NUMBER_(type)                                                                 \
    ((sizeof(type) == 8 ? 3 : sizeof(type) == 4 ? 2 : sizeof(type) == 2 ? 1 : 0)               \
     | (KYMO_SIGN_(type) ? 4 : 0))

#define KYMO_DESCRIBE_(n, k, kind, text, ...)                                                  \
    { KYMO_TEXT_(text), KYMO_DESCRIBE_##kind(__VA_ARGS__) },
#define KYMO_CHECK_(n, k, kind, text, ...) KYMO_CHECK_##kind(__VA_ARGS__)
#define KYMO_MEMBER_(n, k, kind, text, ...) KYMO_MEMBER_##kind(__VA_ARGS__)
#define KYMO_STORE_(n, k, kind, text, ...) KYMO_STORE_##kind(__VA_ARGS__)
#define KYMO_SIZE_(n, k, kind, text, v, ...) + KYMO_SIZE_##kind(kymo_s_->v, __VA_ARGS__)
#define KYMO_PUT_(n, k, kind, text, v, ...)                                                    \
    kymo_to_ = KYMO_PUT_##kind(kymo_s_->v, __VA_ARGS__);
#define KYMO_WORD_(n, k, kind, text, v, ...)                                                   \
    kymo_words_[(n) - (k)] = KYMO_WORD_##kind(kymo_s_->v);
#define KYMO_SDT_FACT_(kind, index, group, ...)                                                \
    | ((index) / 8 == group ? (int)KYMO_SDT_##kind(__VA_ARGS__) << ((index) % 8 * 3) : 0)
#define KYMO_SDT_A_(n, k, kind, text, ...) KYMO_SDT_FACT_(kind, (n) - (k), 0, __VA_ARGS__)
#define KYMO_SDT_B_(n, k, kind, text, ...) KYMO_SDT_FACT_(kind, (n) - (k), 1, __VA_ARGS__)
#define KYMO_SDT_C_(n, k, kind, text, ...) KYMO_SDT_FACT_(kind, (n) - (k), 2, __VA_ARGS__)
#define KYMO_ONE_(n, k, ...) + 1

#define KYMO_DESCRIBE_kymo_int(v, type, base, value)                                           \
    { 1, sizeof(type), (KYMO_SIGN_(type) ? 1 : 0) | base, 0 }, NULL, 0
#define KYMO_CHECK_kymo_int(v, type, ...)                                                      \
    KYMO_ASSERT_(KYMO_IS_NUMBER_(type), "an integer of 1, 2, 4 or 8 bytes")
#define KYMO_MEMBER_kymo_int(v, type, ...) type v;
#define KYMO_STORE_kymo_int(v, type, base, value) kymo_stored_.v = (type)(value);
#define KYMO_SIZE_kymo_int(v, ...) sizeof(v)
#define KYMO_PUT_kymo_int(v, ...) kymo_put_(kymo_to_, &v, sizeof(v))
#define KYMO_WORD_kymo_int(v) (uint64_t)v
#define KYMO_SDT_kymo_int(v, type, ...) KYMO_SDT_NUMBER_(type)

#define KYMO_DESCRIBE_kymo_float(v, type, value) { 2, sizeof(type), 0, 0 }, NULL, 0
#define KYMO_CHECK_kymo_float(v, type, ...)                                                    \
    KYMO_ASSERT_(sizeof(type) == 4 || sizeof(type) == 8, "a float or a double")
#define KYMO_MEMBER_kymo_float(v, type, ...) type v;
#define KYMO_STORE_kymo_float(v, type, value) kymo_stored_.v = (type)(value);
#define KYMO_SIZE_kymo_float(v, ...) sizeof(v)
#define KYMO_PUT_kymo_float(v, ...) kymo_put_(kymo_to_, &v, sizeof(v))
#define KYMO_WORD_kymo_float(v) kymo_bits_(&v, sizeof(v))
#define KYMO_SDT_kymo_float(v, type, ...) (sizeof(type) == 8 ? 3 : 2)

#define KYMO_DESCRIBE_kymo_bool(v, value) { 3, 1, 0, 0 }, NULL, 0
#define KYMO_CHECK_kymo_bool(...)
#define KYMO_MEMBER_kymo_bool(v, ...) uint8_t v;
#define KYMO_STORE_kymo_bool(v, value) kymo_stored_.v = (value) ? 1 : 0;
#define KYMO_SIZE_kymo_bool(v, ...) 1
#define KYMO_PUT_kymo_bool(v, ...) kymo_put_(kymo_to_, &v, 1)
#define KYMO_WORD_kymo_bool(v) v
#define KYMO_SDT_kymo_bool(...) 0

#define KYMO_DESCRIBE_kymo_string(v, ...) { 4, 1, 0, 0 }, NULL, 0
#define KYMO_CHECK_kymo_string(...)
#define KYMO_MEMBER_kymo_string(v, ...) struct kymo_string_ v;
#define KYMO_STORE_kymo_string(v, value) kymo_stored_.v = kymo_string_(value);
#define KYMO_SIZE_kymo_string(v, ...) v.len + 1
#define KYMO_PUT_kymo_string(v, ...) kymo_put_string_(kymo_to_, v)
#define KYMO_WORD_kymo_string(v) (uint64_t)(uintptr_t)v.start
#define KYMO_SDT_kymo_string(...) 3

#define KYMO_DESCRIBE_kymo_text(v, ...) { 4, 1, 0, 0 }, NULL, 0
#define KYMO_CHECK_kymo_text(...)
#define KYMO_MEMBER_kymo_text(v, ...) struct kymo_string_ v;
#define KYMO_STORE_kymo_text(v, start, len) kymo_stored_.v = kymo_counted_(start, len);
#define KYMO_SIZE_kymo_text(v, ...) v.len + 1
#define KYMO_PUT_kymo_text(v, ...) kymo_put_string_(kymo_to_, v)
#define KYMO_WORD_kymo_text(v) kymo_told_(&kymo_room_, v)
#define KYMO_SDT_kymo_text(...) 3

#define KYMO_DESCRIBE_kymo_enum(v, type, values, value)                                        \
    { 5, sizeof(type), KYMO_SIGN_(type) ? 1 : 0, 0 }, values, KYMO_COUNT_OF_(values)
#define KYMO_CHECK_kymo_enum(v, type, ...)                                                     \
    KYMO_ASSERT_(KYMO_IS_NUMBER_(type), "an integer of 1, 2, 4 or 8 bytes")
#define KYMO_MEMBER_kymo_enum(v, type, ...) type v;
#define KYMO_STORE_kymo_enum(v, type, values, value) kymo_stored_.v = (type)(value);
#define KYMO_SIZE_kymo_enum(v, ...) sizeof(v)
#define KYMO_PUT_kymo_enum(v, ...) kymo_put_(kymo_to_, &v, sizeof(v))
#define KYMO_WORD_kymo_enum(v) (uint64_t)v
#define KYMO_SDT_kymo_enum(v, type, ...) KYMO_SDT_NUMBER_(type)

#define KYMO_ELEMENT_(type)                                                                    \
    sizeof(type), (KYMO_SIGN_(type) && !KYMO_FLOATS_(type) ? 1 : 0)                            \
        | (KYMO_FLOATS_(type) ? 4 : 0)
#define KYMO_CHECK_ELEMENT_(type)                                                              \
    KYMO_ASSERT_(KYMO_IS_NUMBER_(type), "elements are integers, floats or doubles")

#define KYMO_DESCRIBE_kymo_array(v, type, start, count)                                        \
    { 6, KYMO_ELEMENT_(type), count }, NULL, 0
#define KYMO_CHECK_kymo_array(v, type, start, count)                                           \
    KYMO_CHECK_ELEMENT_(type)                                                                  \
    KYMO_ASSERT_((count) > 0 && (count) <= 0xffffff, "an array has elements")
#define KYMO_MEMBER_kymo_array(v, type, ...) const type *v;
#define KYMO_STORE_kymo_array(v, type, start, count) kymo_stored_.v = (start);
#define KYMO_SIZE_kymo_array(v, type, start, count) (count) * sizeof(type)
#define KYMO_PUT_kymo_array(v, type, start, count)                                             \
    kymo_put_(kymo_to_, v, (count) * sizeof(type))
#define KYMO_WORD_kymo_array(v) (uint64_t)(uintptr_t)v
#define KYMO_SDT_kymo_array(...) 3

#define KYMO_DESCRIBE_kymo_sequence(v, type, start, count)                                     \
    { 7, KYMO_ELEMENT_(type), 0 }, NULL, 0
#define KYMO_CHECK_kymo_sequence(v, type, ...) KYMO_CHECK_ELEMENT_(type)
#define KYMO_MEMBER_kymo_sequence(v, type, ...)                                                \
    struct { const type *start; uint32_t count; } v;
#define KYMO_STORE_kymo_sequence(v, type, start_, count_)                                      \
    kymo_stored_.v.start = (start_);                                                           \
    kymo_stored_.v.count =                                                                     \
        kymo_elements_(kymo_stored_.v.start, (size_t)(count_), sizeof(type));
#define KYMO_SIZE_kymo_sequence(v, type, ...) 4 + v.count * sizeof(type)
#define KYMO_PUT_kymo_sequence(v, type, ...)                                                   \
    kymo_put_(kymo_put_(kymo_to_, &v.count, 4), v.start, v.count * sizeof(type))
#define KYMO_WORD_kymo_sequence(v) (uint64_t)(uintptr_t)v.start
#define KYMO_SDT_kymo_sequence(...) 3

#define KYMO_DESCRIBE_kymo_symbol(v, value) { 8, 8, 2, 0 }, NULL, 0
#define KYMO_CHECK_kymo_symbol(...)
#define KYMO_MEMBER_kymo_symbol(v, ...) uint64_t v;
#define KYMO_STORE_kymo_symbol(v, value) kymo_stored_.v = (uint64_t)(uintptr_t)(value);
#define KYMO_SIZE_kymo_symbol(v, ...) 8
#define KYMO_PUT_kymo_symbol(v, ...) kymo_put_(kymo_to_, &v, 8)
#define KYMO_WORD_kymo_symbol(v) v
#define KYMO_SDT_kymo_symbol(...) 3

/* ---- Options ---- */

#define KYMO_PRINT_(n, k, kind, ...) KYMO_PRINT_##kind(__VA_ARGS__)
#define KYMO_PRINT_kymo_print(...) __VA_ARGS__
#define KYMO_PRINT_kymo_level(...)
#define KYMO_PRINT_kymo_doc(...)
#define KYMO_PRINT_kymo_when(...)
#define KYMO_DOC_(n, k, kind, ...) KYMO_DOC_##kind(__VA_ARGS__)
#define KYMO_DOC_kymo_print(...)
#define KYMO_DOC_kymo_level(...)
#define KYMO_DOC_kymo_doc(...) __VA_ARGS__
#define KYMO_DOC_kymo_when(...)
#define KYMO_WHEN_(n, k, kind, ...) KYMO_WHEN_##kind(__VA_ARGS__)
#define KYMO_WHEN_kymo_print(...)
#define KYMO_WHEN_kymo_level(...)
#define KYMO_WHEN_kymo_doc(...)
#define KYMO_WHEN_kymo_when(...) if (!(__VA_ARGS__)) return;
/* In place of what there is without the option. */
#define KYMO_CLASS_LEVEL_(n, k, kind, ...) KYMO_CLASS_LEVEL_##kind(__VA_ARGS__)
#define KYMO_CLASS_LEVEL_kymo_print(...)
#define KYMO_CLASS_LEVEL_kymo_level(level) - KYMO_DEBUG + (level)
#define KYMO_CLASS_LEVEL_kymo_doc(...)
#define KYMO_CLASS_LEVEL_kymo_when(...)
#define KYMO_LEVEL_(n, k, kind, ...) KYMO_LEVEL_##kind(__VA_ARGS__)
#define KYMO_LEVEL_kymo_print(...)
#define KYMO_LEVEL_kymo_level(level) * 0 + (level)
#define KYMO_LEVEL_kymo_doc(...)
#define KYMO_LEVEL_kymo_when(...)

/* ---- A class: how its events are described and written ---- */

struct kymo_instance_ { struct kymo_site *site; void (*tell)(const uint64_t *words); };

static inline void kymo_calls_end_(struct kymo_calls *calls)
{
    kymo_abi1_calls_end(calls);
}

#define KYMO_CLASS_(c, proto, args, fields, options)                                           \
    struct c##stored_ { KYMO_EACH_(KYMO_MEMBER_, fields) char kymo_none_; };                   \
    KYMO_EACH_(KYMO_CHECK_, fields)                                                            \
    static const struct kymo_field c##fields_[] __attribute__((unused)) = {                    \
        KYMO_EACH_(KYMO_DESCRIBE_, fields) { KYMO_TEXT_(""), { 1, 1, 0, 0 }, NULL, 0 } };      \
    static const char c##format_[] __attribute__((unused)) =                                   \
        "" KYMO_EACH_(KYMO_PRINT_, options);                                                   \
    enum {                                                                                     \
        c##count_ = 0 KYMO_EACH_(KYMO_ONE_, fields),                                           \
        c##sdt_a_ = 0 KYMO_EACH_(KYMO_SDT_A_, fields),                                         \
        c##sdt_b_ = 0 KYMO_EACH_(KYMO_SDT_B_, fields),                                         \
        c##sdt_c_ = 0 KYMO_EACH_(KYMO_SDT_C_, fields),                                         \
        c##level_ = KYMO_DEBUG KYMO_EACH_(KYMO_CLASS_LEVEL_, options)                          \
    };                                                                                         \
    typedef void c##probe_(void *kymo_data_ KYMO_OPEN_ proto);                                 \
    __attribute__((unused)) static inline void                                                 \
    c##put_(const void *kymo_from_, unsigned char *kymo_to_)                                   \
    {                                                                                          \
        const struct c##stored_ *kymo_s_ = (const struct c##stored_ *)kymo_from_;              \
        (void)kymo_s_;                                                                         \
        KYMO_EACH_(KYMO_PUT_, fields)                                                          \
        (void)kymo_to_;                                                                        \
    }                                                                                          \
    __attribute__((noinline, cold, unused)) static void                                        \
    c##tell_(const struct kymo_instance_ *kymo_of_, const struct c##stored_ *kymo_s_)          \
    {                                                                                          \
        uint64_t kymo_words_[c##count_ + 1];                                                   \
        char kymo_texts_[KYMO_SMALL_];                                                         \
        struct kymo_room_ kymo_room_ = { kymo_texts_, kymo_texts_ + sizeof(kymo_texts_) };     \
        kymo_words_[c##count_] = 0;                                                            \
        (void)kymo_s_;                                                                         \
        (void)kymo_room_;                                                                      \
        KYMO_EACH_(KYMO_WORD_, fields)                                                         \
        kymo_of_->tell(kymo_words_);                                                           \
    }                                                                                          \
    __attribute__((noinline, cold, unused)) static void                                        \
    c##write_(const struct kymo_instance_ *kymo_of_ KYMO_OPEN_ proto, int kymo_end_)           \
    {                                                                                          \
        const uint32_t kymo_listeners_ = *(volatile uint32_t *)&kymo_of_->site->listeners;     \
        struct c##stored_ kymo_stored_, *const kymo_s_ = &kymo_stored_;                        \
        size_t kymo_len_;                                                                      \
        (void)kymo_end_;                                                                       \
        KYMO_EACH_(KYMO_WHEN_, options)                                                        \
        if (kymo_listeners_ >> 16) {                                                           \
            struct kymo_calls kymo_calls_ __attribute__((cleanup(kymo_calls_end_)));           \
            kymo_abi1_calls_begin(kymo_of_->site, &kymo_calls_);                               \
            for (size_t kymo_i_ = 0; kymo_i_ < kymo_calls_.count; kymo_i_++)                   \
                ((c##probe_ *)kymo_calls_.calls[kymo_i_].probe)(                               \
                    kymo_calls_.calls[kymo_i_].data KYMO_OPEN_ args);                          \
        }                                                                                      \
        kymo_stored_.kymo_none_ = 0;                                                           \
        KYMO_EACH_(KYMO_STORE_, fields)                                                        \
        if ((kymo_listeners_ & 0xffff) && kymo_of_->tell)                                      \
            c##tell_(kymo_of_, kymo_s_);                                                       \
        kymo_len_ = 0 KYMO_EACH_(KYMO_SIZE_, fields);                                          \
        if (kymo_len_ <= KYMO_SMALL_) {                                                        \
            struct kymo_scratch kymo_scratch_;                                                 \
            c##put_(kymo_s_, kymo_scratch_.payload);                                           \
            kymo_abi1_record(kymo_of_->site, &kymo_scratch_, kymo_len_);                       \
        } else {                                                                               \
            kymo_abi1_record_large(kymo_of_->site, kymo_len_, c##put_, kymo_s_);               \
        }                                                                                      \
    }

/* ---- An event of a class: its site, its description, its SDT marker ---- */

/* Weak, so that source files which include one header share a site; what they say of it is
 * compared when they are entered. The name for the linker tells a_b:c from a:b_c. */
#define KYMO_INSTANCE_(c, e, provider_, name_, options)                                        \
    static const struct kymo_event e##event_ = {                                               \
        KYMO_TEXT_(provider_), KYMO_TEXT_(name_), { c##format_, sizeof(c##format_) - 1 },      \
        KYMO_TEXT_("" KYMO_EACH_(KYMO_DOC_, options)), KYMO_TEXT_(__FILE__), __LINE__,         \
        c##level_ KYMO_EACH_(KYMO_LEVEL_, options), KYMO_SDT_FLAG_, c##fields_,                \
        KYMO_COUNT_OF_(c##fields_) };                                                          \
    KYMO_EXTERN_ struct kymo_site e##site_ __asm__("kymo_site." provider_ "." name_)           \
        __attribute__((weak, visibility("hidden")));                                           \
    struct kymo_site e##site_ __attribute__((section(".probes"), used)) = {                    \
        &kymo_nobody_, 0, UINT32_MAX, &e##event_, NULL };                                      \
    static const struct kymo_entry e##entry_                                                   \
        __attribute__((section("kymo_events"), used, aligned(16))) = {                         \
        &e##site_, &e##event_ };                                                               \
    KYMO_SDT_(c, e, provider_, name_)                                                          \
    static const struct kymo_instance_ e##at_ __attribute__((unused)) = {                      \
        &e##site_, KYMO_SDT_TELL_(e) };                                                        \
    __attribute__((unused)) static inline int                                                  \
    e##register_(c##probe_ *kymo_probe_, void *kymo_data_)                                     \
    {                                                                                          \
        return KYMO_IS_THERE_                                                                  \
            ? kymo_abi1_register(&e##site_, (kymo_probe)kymo_probe_, kymo_data_) : -ENOSYS;    \
    }                                                                                          \
    __attribute__((unused)) static inline int                                                  \
    e##unregister_(c##probe_ *kymo_probe_, void *kymo_data_)                                   \
    {                                                                                          \
        return KYMO_IS_THERE_                                                                  \
            ? kymo_abi1_unregister(&e##site_, (kymo_probe)kymo_probe_, kymo_data_) : -ENOSYS;  \
    }                                                                                          \
    /* A constant: the call is a direct one. */                                                \
    static __typeof__(c##write_) *const e##write_p_ __attribute__((unused)) = c##write_;
#define KYMO_INSTANCE_OF_(c, provider, ...) KYMO_INSTANCE_OF_I_(c, provider, __VA_ARGS__)
#define KYMO_INSTANCE_OF_I_(c, provider, name, ...)                                            \
    KYMO_INSTANCE_(c, kymo_##provider##_##name##_, #provider, #name, (, __VA_ARGS__))

#define KYMO_EMIT_(provider, name, ...)                                                        \
    do {                                                                                       \
        if (kymo_enabled(provider, name))                                                      \
            kymo_##provider##_##name##_write_p_(                                               \
                &kymo_##provider##_##name##_at_, __VA_ARGS__);                                 \
    } while (0)

#if defined(__x86_64__)
#define KYMO_SDT_FLAG_ 4
#define KYMO_SDT_TELL_(e) e##tell_sdt_
/* Bytes, with a minus if signed, and where the value lies: -4@16(%rax) */
#define KYMO_SDT_ARGUMENT_(i, at, facts, shift)                                                \
    ".if %c[kymo_n]>" i "\n.if (%c[kymo_" facts "]>>" shift ")&4\n.ascii \"-\"\n.endif\n"      \
    ".byte 48+(1<<((%c[kymo_" facts "]>>" shift ")&3))\n.ascii \"@" at "(%[kymo_w]) \"\n.endif\n"
#define KYMO_SDT_ARGUMENTS_                                                                    \
        KYMO_SDT_ARGUMENT_("0", "0", "a", "0")                                                 \
        KYMO_SDT_ARGUMENT_("1", "8", "a", "3")                                                 \
        KYMO_SDT_ARGUMENT_("2", "16", "a", "6")                                                \
        KYMO_SDT_ARGUMENT_("3", "24", "a", "9")                                                \
        KYMO_SDT_ARGUMENT_("4", "32", "a", "12")                                               \
        KYMO_SDT_ARGUMENT_("5", "40", "a", "15")                                               \
        KYMO_SDT_ARGUMENT_("6", "48", "a", "18")                                               \
        KYMO_SDT_ARGUMENT_("7", "56", "a", "21")                                               \
        KYMO_SDT_ARGUMENT_("8", "64", "b", "0")                                                \
        KYMO_SDT_ARGUMENT_("9", "72", "b", "3")                                                \
        KYMO_SDT_ARGUMENT_("10", "80", "b", "6")                                               \
        KYMO_SDT_ARGUMENT_("11", "88", "b", "9")                                               \
        KYMO_SDT_ARGUMENT_("12", "96", "b", "12")                                              \
        KYMO_SDT_ARGUMENT_("13", "104", "b", "15")                                             \
        KYMO_SDT_ARGUMENT_("14", "112", "b", "18")                                             \
        KYMO_SDT_ARGUMENT_("15", "120", "b", "21")                                             \
        KYMO_SDT_ARGUMENT_("16", "128", "c", "0")                                              \
        KYMO_SDT_ARGUMENT_("17", "136", "c", "3")                                              \
        KYMO_SDT_ARGUMENT_("18", "144", "c", "6")                                              \
        KYMO_SDT_ARGUMENT_("19", "152", "c", "9")                                              \
        KYMO_SDT_ARGUMENT_("20", "160", "c", "12")                                             \
        KYMO_SDT_ARGUMENT_("21", "168", "c", "15")                                             \
        KYMO_SDT_ARGUMENT_("22", "176", "c", "18")                                             \
        KYMO_SDT_ARGUMENT_("23", "184", "c", "21")
/* A one-byte nop, which kernels trap, then the long nop that newer ones can turn into a call.
 * Arguments lie in memory, so that no register is needed for them. */
#define KYMO_SDT_(c, e, provider_, name_)                                                      \
    __attribute__((noinline, cold, unused)) static void                                        \
    e##tell_sdt_(const uint64_t *kymo_words_)                                                  \
    {                                                                                          \
        __asm__ __volatile__(                                                                  \
            "990: nop\n"                                                                       \
            ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00\n"               \
            ".pushsection .note.stapsdt, \"?\", \"note\"\n"                                    \
            ".balign 4\n"                                                                      \
            ".4byte 992f-991f, 994f-993f, 3\n"                                                 \
            "991: .asciz \"stapsdt\"\n"                                                        \
            "992: .balign 4\n"                                                                 \
            "993: .8byte 990b\n"                                                               \
            ".8byte _.stapsdt.base\n"                                                          \
            ".8byte kymo_site." provider_ "." name_ "+8\n"                                     \
            ".asciz \"" provider_ "\"\n"                                                       \
            ".asciz \"" name_ "\"\n"                                                           \
            KYMO_SDT_ARGUMENTS_                                                                \
            ".byte 0\n"                                                                        \
            "994: .balign 4\n"                                                                 \
            ".popsection\n"                                                                    \
            ".ifndef _.stapsdt.base\n"                                                         \
            ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"        \
            ".weak _.stapsdt.base\n"                                                           \
            ".hidden _.stapsdt.base\n"                                                         \
            "_.stapsdt.base: .space 1\n"                                                       \
            ".size _.stapsdt.base, 1\n"                                                        \
            ".popsection\n"                                                                    \
            ".endif\n"                                                                         \
            : : [kymo_n] "i"((int)c##count_), [kymo_a] "i"((int)c##sdt_a_),                    \
            [kymo_b] "i"((int)c##sdt_b_), [kymo_c] "i"((int)c##sdt_c_),                        \
            [kymo_w] "r"(kymo_words_) : "memory");                                             \
    }
#else
#define KYMO_SDT_FLAG_ 0
#define KYMO_SDT_TELL_(e) NULL
#define KYMO_SDT_(c, e, provider_, name_)
#endif

#ifdef __cplusplus
}
#endif
#endif
