/* Calls itself as deeply as each of its arguments says, and then makes one call
   of getppid with that depth as the first argument of the system call. Frames of
   `descend` are of one size each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline, noclone)) void descend(long depth, long left) {
    volatile char room[152];
    room[0] = left;
    if (left > 1) descend(depth, left - 1);
    else syscall(SYS_getppid, depth);
    room[1] = room[0];
}
static int number;
static char **words;
static void *all(void *nothing) {
    for (int i = 1; i < number; i++) descend(atol(words[i]), atol(words[i]));
    return nothing;
}
int main(int count, char **arguments) {
    number = count, words = arguments;
    if (getenv("IN_THREAD")) {
        pthread_t thread;
        pthread_create(&thread, 0, all, 0);
        pthread_join(thread, 0);
    } else all(0);
    return 0;
}
