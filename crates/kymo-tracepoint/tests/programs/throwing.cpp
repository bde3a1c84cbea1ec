// A callback that throws does not count as one that is still running.
#include "kymo_tracepoint.h"
#include <cstdio>
#include <stdexcept>

KYMO_TRACEPOINT_EVENT(calls, thrown, KYMO_TP_PROTO(int number), KYMO_TP_ARGS(number),
                      KYMO_TP_FIELDS(kymo_field_integer(int, number, number)),
                      KYMO_TP_PRINT("{number}"))

static void thrower(void *, int number)
{
    throw std::runtime_error(std::to_string(number));
}

int main()
{
    kymo_register(calls, thrown, thrower, nullptr);
    for (int i = 0; i < 3; i++) {
        try {
            kymo_emit(calls, thrown, i);
        } catch (const std::runtime_error &error) {
            std::printf("%s\n", error.what());
        }
    }
    const int unregistered = kymo_unregister(calls, thrown, thrower, nullptr);
    std::printf("%d %d\n", unregistered, kymo_synchronize());
}
