/* kymo_tracepoint.h: static tracepoints for programs in C.
 *
 * Declare an event once, in a header or a source file, with its fields as a list:
 *
 *     #define SALE_FIELDS(F) F(u64, id) F(str, customer) F(f64, euros)
 *     KYMO_TRACEPOINT(shop, sale, KYMO_INFO, "sale {id} to {customer}", SALE_FIELDS)
 *
 * and hit it where it happens:
 *
 *     kymo_emit(shop, sale, 1, name, 9.95);
 *
 * The arguments are evaluated only while somebody listens: until then it costs two loads
 * and a branch. Types: u8 u16 u32 u64 i8 i16 i32 i64 x32 x64 (hexadecimal) f32 f64, boolean,
 * str (const char *, may be NULL), sym (const void *, shown as a function), bytes (a sequence
 * of bytes, given as kymo_bytes(start, count)).
 *
 * Link the static library of the crate kymo-tracepoint:
 *     cargo rustc --release -p kymo-tracepoint --crate-type staticlib
 *     cc prog.c -Icrates/kymo-tracepoint/include libkymo_tracepoint.a -lpthread -ldl -lm
 * Libraries that are loaded by such a program include this header and link nothing; link the
 * program with -rdynamic then.
 *
 * An event is also an SDT marker provider:name, with a semaphore and the fields as arguments
 * (floats as their bits, texts, symbols and bytes as addresses). With more than 24 fields define
 * KYMO_SDT_NO_ARGUMENTS before including this: the compiler takes no more.
 * Needs GNU C (gcc, clang) on 64-bit Linux. The layouts are those of `src/site.rs`.
 */
#ifndef KYMO_TRACEPOINT_H
#define KYMO_TRACEPOINT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kymo_level {
    KYMO_EMERGENCY, KYMO_ALERT, KYMO_CRITICAL, KYMO_ERROR, KYMO_WARNING, KYMO_NOTICE, KYMO_INFO,
    KYMO_DEBUG_SYSTEM, KYMO_DEBUG_PROGRAM, KYMO_DEBUG_PROCESS, KYMO_DEBUG_MODULE,
    KYMO_DEBUG_UNIT, KYMO_DEBUG_FUNCTION, KYMO_DEBUG_LINE, KYMO_DEBUG
};

struct kymo_text { const char *start; size_t len; };
struct kymo_shape { uint8_t kind, size, flags; uint32_t count; };
struct kymo_field {
    struct kymo_text name;
    struct kymo_shape shape;
    const void *entries;
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
    uint32_t listeners; /* the lower half is the SDT semaphore */
    uint32_t id;
    const struct kymo_event *event;
    void *callbacks;
};

void kymo_register(struct kymo_site *const *start, struct kymo_site *const *stop);
void kymo_unregister(struct kymo_site *const *start, struct kymo_site *const *stop);
void kymo_record(const struct kymo_site *site, const void *payload, size_t len);

extern struct kymo_site *const __start_kymo_events[] __attribute__((visibility("hidden")));
extern struct kymo_site *const __stop_kymo_events[] __attribute__((visibility("hidden")));

/* Each source file of a program or library does this; the second time does nothing. */
__attribute__((constructor, unused)) static void kymo_enter_(void)
{
    kymo_register(__start_kymo_events, __stop_kymo_events);
}

__attribute__((destructor, unused)) static void kymo_leave_(void)
{
    kymo_unregister(__start_kymo_events, __stop_kymo_events);
}

/* What sites look at before they are entered. */
static const uint64_t kymo_nobody_ __attribute__((unused)) = 0;

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

/* kind, size, flags */
#define KYMO_SHAPE_u8 { 1, 1, 0, 0 }
#define KYMO_SHAPE_u16 { 1, 2, 0, 0 }
#define KYMO_SHAPE_u32 { 1, 4, 0, 0 }
#define KYMO_SHAPE_u64 { 1, 8, 0, 0 }
#define KYMO_SHAPE_i8 { 1, 1, 1, 0 }
#define KYMO_SHAPE_i16 { 1, 2, 1, 0 }
#define KYMO_SHAPE_i32 { 1, 4, 1, 0 }
#define KYMO_SHAPE_i64 { 1, 8, 1, 0 }
#define KYMO_SHAPE_x32 { 1, 4, 2, 0 }
#define KYMO_SHAPE_x64 { 1, 8, 2, 0 }
#define KYMO_SHAPE_f32 { 2, 4, 0, 0 }
#define KYMO_SHAPE_f64 { 2, 8, 0, 0 }
#define KYMO_SHAPE_boolean { 3, 1, 0, 0 }
#define KYMO_SHAPE_str { 4, 1, 0, 0 }
#define KYMO_SHAPE_sym { 8, 8, 2, 0 }
#define KYMO_SHAPE_bytes { 7, 1, 0, 0 }

#define KYMO_LEN_u8(v) 1
#define KYMO_LEN_u16(v) 2
#define KYMO_LEN_u32(v) 4
#define KYMO_LEN_u64(v) 8
#define KYMO_LEN_i8(v) 1
#define KYMO_LEN_i16(v) 2
#define KYMO_LEN_i32(v) 4
#define KYMO_LEN_i64(v) 8
#define KYMO_LEN_x32(v) 4
#define KYMO_LEN_x64(v) 8
#define KYMO_LEN_f32(v) 4
#define KYMO_LEN_f64(v) 8
#define KYMO_LEN_boolean(v) 1
#define KYMO_LEN_sym(v) 8
#define KYMO_LEN_str(v) (((v) ? strlen(v) : 6) + 1)
#define KYMO_LEN_bytes(v) ((size_t)(v).count + 4)

/* Texts and bytes are cut to this in one event. */
#define KYMO_MAX_TEXT 4000

#define KYMO_TEXT_(t) { t, sizeof(t) - 1 }
#define KYMO_FIELD_(type, name) { KYMO_TEXT_(#name), KYMO_SHAPE_##type, NULL, 0 },
#define KYMO_ARG_(type, name) , kymo_##type##_t name
/* Lengths are taken once: a text may change meanwhile. */
#define KYMO_COUNT_(type, name)                                                               \
    const size_t kymo_len_of_##name = kymo_size_(KYMO_LEN_##type(name));                      \
    kymo_len_ += kymo_len_of_##name;
#define KYMO_PUT_(type, name) \
    kymo_at_ = kymo_put_(kymo_at_, KYMO_KIND_##type(name), kymo_len_of_##name);
#define KYMO_KIND_u8(v) &(v), 0
#define KYMO_KIND_u16(v) &(v), 0
#define KYMO_KIND_u32(v) &(v), 0
#define KYMO_KIND_u64(v) &(v), 0
#define KYMO_KIND_i8(v) &(v), 0
#define KYMO_KIND_i16(v) &(v), 0
#define KYMO_KIND_i32(v) &(v), 0
#define KYMO_KIND_i64(v) &(v), 0
#define KYMO_KIND_x32(v) &(v), 0
#define KYMO_KIND_x64(v) &(v), 0
#define KYMO_KIND_f32(v) &(v), 0
#define KYMO_KIND_f64(v) &(v), 0
#define KYMO_KIND_boolean(v) &(v), 0
#define KYMO_KIND_sym(v) &(v), 0
#define KYMO_KIND_str(v) ((v) ? (v) : "(null)"), 1
#define KYMO_KIND_bytes(v) (v).start, 2

static inline size_t kymo_size_(size_t len)
{
    return len < KYMO_MAX_TEXT ? len : KYMO_MAX_TEXT;
}

/* KIND: 0 a number, 1 a text, 2 bytes, with their count before them. */
static inline char *kymo_put_(char *at, const void *from, int kind, size_t len)
{
    if (kind == 2) {
        const uint32_t count = (uint32_t)(len - 4);
        memcpy(at, &count, 4);
        if (count)
            memcpy(at + 4, from, count);
        return at + len;
    }
    memcpy(at, from, len);
    if (kind == 1)
        at[len - 1] = 0;
    return at + len;
}

/* An argument of the SDT marker: its bytes, negative if signed, and its value in eight bytes. */
#define KYMO_SDT_SIZE_u8 "1"
#define KYMO_SDT_SIZE_u16 "2"
#define KYMO_SDT_SIZE_u32 "4"
#define KYMO_SDT_SIZE_u64 "8"
#define KYMO_SDT_SIZE_i8 "-1"
#define KYMO_SDT_SIZE_i16 "-2"
#define KYMO_SDT_SIZE_i32 "-4"
#define KYMO_SDT_SIZE_i64 "-8"
#define KYMO_SDT_SIZE_x32 "4"
#define KYMO_SDT_SIZE_x64 "8"
#define KYMO_SDT_SIZE_f32 "4"
#define KYMO_SDT_SIZE_f64 "8"
#define KYMO_SDT_SIZE_boolean "1"
#define KYMO_SDT_SIZE_str "8"
#define KYMO_SDT_SIZE_sym "8"
#define KYMO_SDT_SIZE_bytes "8"
#define KYMO_SDT_VALUE_u8(v) (v)
#define KYMO_SDT_VALUE_u16(v) (v)
#define KYMO_SDT_VALUE_u32(v) (v)
#define KYMO_SDT_VALUE_u64(v) (v)
#define KYMO_SDT_VALUE_i8(v) ((uint64_t)(v))
#define KYMO_SDT_VALUE_i16(v) ((uint64_t)(v))
#define KYMO_SDT_VALUE_i32(v) ((uint64_t)(v))
#define KYMO_SDT_VALUE_i64(v) ((uint64_t)(v))
#define KYMO_SDT_VALUE_x32(v) (v)
#define KYMO_SDT_VALUE_x64(v) (v)
#define KYMO_SDT_VALUE_f32(v) kymo_bits_(&(v), 4)
#define KYMO_SDT_VALUE_f64(v) kymo_bits_(&(v), 8)
#define KYMO_SDT_VALUE_boolean(v) (v)
#define KYMO_SDT_VALUE_str(v) ((uint64_t)(uintptr_t)((v) ? (v) : "(null)"))
#define KYMO_SDT_VALUE_sym(v) ((uint64_t)(uintptr_t)(v))
#define KYMO_SDT_VALUE_bytes(v) ((uint64_t)(uintptr_t)(v).start)

static inline uint64_t kymo_bits_(const void *from, size_t len)
{
    uint64_t bits = 0;
    memcpy(&bits, from, len);
    return bits;
}

#ifndef KYMO_SDT_NO_ARGUMENTS
#define KYMO_SDT_TEXT_(type, name) \
    KYMO_SDT_SIZE_##type "@%c[kymo_at_" #name "](%[kymo_words]) "
#define KYMO_SDT_OPERAND_(type, name) \
    , [kymo_at_##name] "i"(offsetof(struct kymo_words_, name))
#else
#define KYMO_SDT_TEXT_(type, name)
#define KYMO_SDT_OPERAND_(type, name)
#endif
#define KYMO_SDT_WORD_(type, name) uint64_t name;
#define KYMO_SDT_SET_(type, name) kymo_words_.name = KYMO_SDT_VALUE_##type(name);

#if defined(__x86_64__)
/* A one-byte nop, which kernels trap, then the long nop that newer ones can turn into a call.
 * Arguments lie in memory, so that no register is needed for them. */
#define KYMO_SDT_(provider, name, site, FIELDS)                                               \
    do {                                                                                      \
        struct kymo_words_ { FIELDS(KYMO_SDT_WORD_) uint64_t kymo_none; } kymo_words_;        \
        kymo_words_.kymo_none = 0;                                                            \
        FIELDS(KYMO_SDT_SET_)                                                                 \
        __asm__ __volatile__(                                                                 \
            "990: nop\n"                                                                      \
            ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00\n"              \
            ".pushsection .note.stapsdt, \"?\", \"note\"\n"                                   \
            ".balign 4\n"                                                                     \
            ".4byte 992f-991f, 994f-993f, 3\n"                                                \
            "991: .asciz \"stapsdt\"\n"                                                       \
            "992: .balign 4\n"                                                                \
            "993: .8byte 990b\n"                                                              \
            ".8byte _.stapsdt.base\n"                                                         \
            ".8byte %c[kymo_site] + 8\n"                                                      \
            ".asciz \"" #provider "\"\n"                                                      \
            ".asciz \"" #name "\"\n"                                                          \
            ".asciz \"" FIELDS(KYMO_SDT_TEXT_) "\"\n"                                         \
            "994: .balign 4\n"                                                                \
            ".popsection\n"                                                                   \
            ".ifndef _.stapsdt.base\n"                                                        \
            ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"       \
            ".weak _.stapsdt.base\n"                                                          \
            ".hidden _.stapsdt.base\n"                                                        \
            "_.stapsdt.base: .space 1\n"                                                      \
            ".size _.stapsdt.base, 1\n"                                                       \
            ".popsection\n"                                                                   \
            ".endif\n"                                                                        \
            : : [kymo_site] "i"(&(site)), [kymo_words] "r"(&kymo_words_)                      \
            FIELDS(KYMO_SDT_OPERAND_) : "memory");                                            \
    } while (0)
#else
#define KYMO_SDT_(provider, name, site, FIELDS) ((void)0)
#endif

#define KYMO_TRACEPOINT(provider_, name_, level_, format_, FIELDS)                            \
    static const struct kymo_field kymo_##provider_##_##name_##_fields[] = {                  \
        FIELDS(KYMO_FIELD_) { KYMO_TEXT_(""), { 1, 1, 0, 0 }, NULL, 0 } };                    \
    static const struct kymo_event kymo_##provider_##_##name_##_event = {                     \
        KYMO_TEXT_(#provider_), KYMO_TEXT_(#name_), KYMO_TEXT_(format_), KYMO_TEXT_(""),      \
        KYMO_TEXT_(__FILE__), __LINE__, level_, 4, kymo_##provider_##_##name_##_fields,       \
        sizeof(kymo_##provider_##_##name_##_fields) / sizeof(struct kymo_field) - 1 };        \
    static struct kymo_site kymo_##provider_##_##name_##_site                                 \
        __attribute__((section(".probes"), used)) = {                                      \
        &kymo_nobody_, 0, UINT32_MAX, &kymo_##provider_##_##name_##_event, NULL };            \
    static struct kymo_site *const kymo_##provider_##_##name_##_entry                         \
        __attribute__((section("kymo_events"), used)) = &kymo_##provider_##_##name_##_site;   \
    __attribute__((noinline, cold, unused)) static void                                       \
    kymo_##provider_##_##name_##_emit(int kymo_none_ FIELDS(KYMO_ARG_))                       \
    {                                                                                         \
        size_t kymo_len_ = 0;                                                                 \
        (void)kymo_none_;                                                                     \
        FIELDS(KYMO_COUNT_)                                                                   \
        char kymo_payload_[kymo_len_ + 1];                                                    \
        char *kymo_at_ = kymo_payload_;                                                       \
        kymo_payload_[kymo_len_] = 0;                                                         \
        FIELDS(KYMO_PUT_)                                                                     \
        kymo_record(&kymo_##provider_##_##name_##_site, kymo_payload_,                        \
                    (size_t)(kymo_at_ - kymo_payload_));                                      \
        if (*(volatile uint32_t *)&kymo_##provider_##_##name_##_site.listeners & 0xffff)      \
            KYMO_SDT_(provider_, name_, kymo_##provider_##_##name_##_site, FIELDS);           \
    }

/* Whether anybody listens. */
#define kymo_enabled(provider, name)                                                          \
    __builtin_expect(                                                                         \
        (*(const volatile uint64_t *)                                                         \
             *(const uint64_t *volatile *)&kymo_##provider##_##name##_site.enabled            \
         | *(volatile uint32_t *)&kymo_##provider##_##name##_site.listeners) != 0, 0)

#define kymo_emit(provider, name, ...)                                                        \
    do {                                                                                      \
        if (kymo_enabled(provider, name))                                                     \
            kymo_##provider##_##name##_emit(0, ##__VA_ARGS__);                                \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
