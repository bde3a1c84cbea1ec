/* Tracepoints of every kind, for source files in C and C++. */
#ifndef EVERY_H
#define EVERY_H

#include "kymo_tracepoint.h"

enum payment { CASH = -1, CARD = 2 };

/* Names are texts: anything may stand in them. */
KYMO_TRACEPOINT_ENUM(
    every, payment,
    KYMO_TP_ENUM_VALUES(
        kymo_enum_value("Cash", CASH), kymo_enum_value("Card \"2\" \\ ü", CARD),
        kymo_enum_range("many", 10, 19)))

#define WEEKDAYS(V) V("Monday", 1, 1) V("Tuesday", 2, 2) V("weekend", 6, 7)
KYMO_TRACEPOINT_ENUM_LIST(every, weekday, WEEKDAYS)

static const double every_floats[] __attribute__((unused)) = { 0.5, -1 };

KYMO_TRACEPOINT_EVENT(
    every, type,
    KYMO_TP_PROTO(uint64_t number, const char *text, enum payment payment, const int16_t *array,
                  const uint32_t *sequence, size_t count),
    KYMO_TP_ARGS(number, text, payment, array, sequence, count),
    KYMO_TP_FIELDS(
        kymo_field_integer(uint8_t, u8_, number),
        kymo_field_integer(unsigned short, u16_, number),
        kymo_field_integer_hex(unsigned, u32_, number + 0xff00),
        kymo_field_integer(uint64_t, u64_, number),
        kymo_field_integer(signed char, i8_, -(int)number),
        kymo_field_integer(short, i16_, -(int)number),
        kymo_field_integer(int, i32_, -(int)number),
        kymo_field_integer(int64_t, i64_, -(int64_t)number),
        kymo_field_float(float, f32_, (float)number + 0.5f),
        kymo_field_float(double, f64_, (double)number - 0.25),
        kymo_field_bool(yes, number % 2),
        kymo_field_string(text, text),
        kymo_field_text(part, text, 2),
        kymo_field_enum(every, payment, int16_t, payment, payment),
        kymo_field_enum(every, weekday, uint8_t, day, number + 4),
        kymo_field_array(int16_t, array, array, 3),
        kymo_field_sequence(uint32_t, sequence, sequence, count),
        kymo_field_array(double, floats, every_floats, 2),
        kymo_field_bytes(bytes, text, 3),
        kymo_field_symbol(at, 0xabcd),
        /* A macro, and a word of the metadata's language. */
        kymo_field_integer(int, errno, number),
        kymo_field_integer(int, event, number),
        kymo_field_integer(int, last, number),
        kymo_field_integer(int, known, number),
        kymo_field_integer(int, unknown, number)),
    KYMO_TP_PRINT("{u64_} " "{payment} {day} {{}} {u32_:x}"),
    KYMO_TP_LEVEL(KYMO_WARNING),
    KYMO_TP_DOC("Every type there is."))

KYMO_TRACEPOINT_EVENT_CLASS(
    every, class,
    KYMO_TP_PROTO(uint32_t number),
    KYMO_TP_ARGS(number),
    KYMO_TP_FIELDS(kymo_field_integer(uint32_t, number, number)),
    KYMO_TP_PRINT("number {number}"),
    KYMO_TP_LEVEL(KYMO_NOTICE),
    KYMO_TP_CONDITION(number != 3))
KYMO_TRACEPOINT_EVENT_INSTANCE(every, class, one, KYMO_TP_DOC("One."))
KYMO_TRACEPOINT_EVENT_INSTANCE(every, class, two, KYMO_TP_LEVEL(KYMO_ERROR))

KYMO_TRACEPOINT_EVENT(every, nothing, KYMO_TP_PROTO(void), KYMO_TP_ARGS(), KYMO_TP_FIELDS(),
                      KYMO_TP_PRINT("nothing"))

KYMO_TRACEPOINT_EVENT(
    every, large,
    KYMO_TP_PROTO(const char *text, size_t len),
    KYMO_TP_ARGS(text, len),
    KYMO_TP_FIELDS(kymo_field_text(text, text, len), kymo_field_bytes(bytes, text, len),
                   kymo_field_integer(size_t, len, len)),
    KYMO_TP_PRINT("{len}"))

/* Would be one symbol if names were joined carelessly. */
KYMO_TRACEPOINT_EVENT(every, a_b, KYMO_TP_PROTO(int x), KYMO_TP_ARGS(x),
                      KYMO_TP_FIELDS(kymo_field_integer(int, x, x)), KYMO_TP_PRINT("{x}"))

#ifdef __cplusplus
extern "C"
#endif
void hit_elsewhere(uint32_t number);

#endif
