/* A computation that tracers look at: `mix ROUNDS` hits mixc:turn in each round and prints what
 * it has computed, in a leaf function with more values than registers, which keeps some in the red
 * zone. `mix` waits between the rounds until its standard input ends. */
#include "kymo_tracepoint.h"
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUND_FIELDS(F) F(u64, number) F(i32, less) F(str, parity) F(u8, low) F(f64, half) \
    F(bytes, raw)
KYMO_TRACEPOINT(mixc, turn, KYMO_INFO, "turn {number} {less} {parity}", ROUND_FIELDS)

__attribute__((noinline)) static uint64_t leaf(uint64_t a, uint64_t b)
{
    volatile uint64_t v[12];
    for (int i = 0; i < 12; i++)
        v[i] = (a ^ (uint64_t)i * b) * 0x9e3779b97f4a7c15u;
    for (int i = 1; i < 12; i++)
        v[i] += v[i - 1] >> 7 ^ v[(i * 5) % 12];
    return v[11] ^ v[3];
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : UINT64_MAX, sum = 1;
    struct pollfd input = { 0, POLLIN, 0 };
    for (uint64_t i = 0; i < rounds; i++) {
        sum = leaf(sum, i);
        kymo_emit(mixc, turn, i, -(int32_t)i, i % 2 ? "odd" : "even", (uint8_t)i, i / 2.0,
                  kymo_bytes(&sum, 8));
        sum ^= leaf(i, sum);
        if (argc < 2 && poll(&input, 1, 1) != 0)
            break;
    }
    printf("result %" PRIx64 "\n", sum);
    return 0;
}
