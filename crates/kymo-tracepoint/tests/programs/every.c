/* Hits tracepoints of every kind, and says how often arguments were evaluated. */
#include "every.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int evaluated;

static uint64_t count(uint64_t number)
{
    evaluated++;
    return number;
}

int main(void)
{
    static char large[100000];
    const int16_t array[] = { 1, -2, 3 };
    const uint32_t sequence[] = { 9, 8, 7 };
    memset(large, 'x', sizeof(large));
    for (uint32_t i = 1; i <= 3; i++) {
        kymo_emit(every, type, count(i), i == 3 ? NULL : "text", i == 1 ? CASH : CARD,
                  i == 3 ? NULL : array, i == 3 ? NULL : sequence, i);
        kymo_emit(every, one, i);
        kymo_emit(every, two, i);
        hit_elsewhere(i);
    }
    kymo_emit(every, nothing);
    kymo_emit(every, large, large, 5);
    kymo_emit(every, large, large, 481);
    kymo_emit(every, large, large, 20000);
    /* Larger than a sub-buffer. */
    kymo_emit(every, large, large, sizeof(large));
    kymo_emit(every, large, NULL, (size_t)-1);
    kymo_emit(every, a_b, 7);
    printf("%d\n", evaluated);
    return 0;
}
