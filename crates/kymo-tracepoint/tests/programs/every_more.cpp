// The same tracepoints in C++: there is one of each in a program.
#include "every.h"

namespace {
enum class colour : unsigned char { red, green };
KYMO_TRACEPOINT_ENUM(every, colour, KYMO_TP_ENUM_VALUES(
    kymo_enum_value("red", colour::red), kymo_enum_value("green", colour::green)))
KYMO_TRACEPOINT_EVENT(
    every, cpp, KYMO_TP_PROTO(colour shade, bool yes), KYMO_TP_ARGS(shade, yes),
    KYMO_TP_FIELDS(kymo_field_enum(every, colour, unsigned char, shade, shade),
                   kymo_field_bool(yes, yes)),
    KYMO_TP_PRINT("{shade}"))
}

template <typename T> static void hit(T number)
{
    kymo_emit(every, two, static_cast<uint32_t>(number) + 10);
}

void hit_elsewhere(uint32_t number)
{
    hit(number);
    auto green = [] { kymo_emit(every, cpp, colour::green, true); };
    if (number == 3)
        green();
}
