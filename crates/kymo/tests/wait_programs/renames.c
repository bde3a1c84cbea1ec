// renames NAME MS N: takes a name, unless it is `-`, then sleeps N times for MS milliseconds.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 4) return 2;
    if (strcmp(arguments[1], "-")) prctl(PR_SET_NAME, arguments[1]);
    fprintf(stderr, "pid %d\n", getpid());
    int ms = atoi(arguments[2]);
    for (int n = atoi(arguments[3]); n > 0; n--) {
        struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
        nanosleep(&t, 0);
    }
    return 0;
}
