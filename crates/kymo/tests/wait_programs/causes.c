/* Waits for one thing most of its time: a mutex that another thread holds, a file on disk, or a
 * child; then prints how long that took, in nanoseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int held;
volatile unsigned long sink;

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

__attribute__((noinline)) void hold_the_lock(void) {
    pthread_mutex_lock(&lock);
    atomic_store(&held, 1);
    for (long until = now() + 200000000; now() < until;) sink++;
    pthread_mutex_unlock(&lock);
    sink++;
}

static void *holder(void *arg) {
    hold_the_lock();
    return arg;
}

__attribute__((noinline)) void need_the_lock(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    sink++;
}

__attribute__((noinline)) void save_the_file(const char *path) {
    static char block[1 << 18];
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    for (int n = 0; n < 60; n++) {
        memset(block, n, sizeof block);
        if (fd < 0 || write(fd, block, sizeof block) < 0 || fsync(fd)) exit(1);
    }
    close(fd);
    sink++;
}

__attribute__((noinline)) void wait_for_the_child(pid_t child) {
    waitpid(child, 0, 0);
    sink++;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t thread;
    long from = 0;
    if (!strcmp(what, "mutex")) {
        pthread_create(&thread, 0, holder, 0);
        while (!atomic_load(&held)) usleep(100);
        from = now();
        need_the_lock();
        from = now() - from;
        pthread_join(thread, 0);
    } else if (!strcmp(what, "fsync") && argc > 2) {
        from = now();
        save_the_file(argv[2]);
        from = now() - from;
    } else if (!strcmp(what, "child")) {
        pid_t child = fork();
        if (child == 0) {
            for (long until = now() + 200000000; now() < until;) sink++;
            _exit(0);
        }
        from = now();
        wait_for_the_child(child);
        from = now() - from;
    }
    printf("%ld\n", from);
    return 0;
}
