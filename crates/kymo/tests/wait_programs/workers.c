// The first thread reads a terminal; `guilty` sleeps 60 ms and writes to it. `innocent` writes to
// another terminal all the time. The same worker of the kernel serves both.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static int masters[2], slaves[2];
static volatile int stop;

static void open_terminal(int n) {
    struct termios raw;
    masters[n] = posix_openpt(O_RDWR | O_NOCTTY);
    if (masters[n] < 0 || grantpt(masters[n]) || unlockpt(masters[n])) exit(77);
    slaves[n] = open(ptsname(masters[n]), O_RDWR | O_NOCTTY);
    tcgetattr(slaves[n], &raw);
    cfmakeraw(&raw);
    tcsetattr(slaves[n], TCSANOW, &raw);
}

static void pause_ms(int ms) {
    struct timespec t = {0, ms * 1000000L};
    nanosleep(&t, 0);
}

static void *guilty(void *nothing) {
    prctl(PR_SET_NAME, "guilty");
    pause_ms(60);
    if (write(masters[0], "x", 1) != 1) exit(3);
    pause_ms(20);
    return nothing;
}

static void *innocent(void *nothing) {
    char byte;
    prctl(PR_SET_NAME, "innocent");
    while (!stop) {
        if (write(masters[1], "y", 1) != 1 || read(slaves[1], &byte, 1) != 1) exit(3);
        pause_ms(7);
    }
    return nothing;
}

int main(void) {
    pthread_t threads[2];
    char byte;
    open_terminal(0);
    open_terminal(1);
    pthread_create(&threads[0], 0, innocent, 0);
    pthread_create(&threads[1], 0, guilty, 0);
    if (read(slaves[0], &byte, 1) != 1) return 3;
    stop = 1;
    fflush(0);
    _exit(0);
}
