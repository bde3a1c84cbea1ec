/* Waits in ways that are told apart, measures each by the clock, and prints for each function
 * that waits its nanoseconds. Meanwhile another process on each CPU keeps it from being idle, at
 * the least priority: some kernels leave out events that happen in the idle task. System calls are
 * made without the C library, so that a chain of frame pointers has the function that made them. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 8
#define NOINLINE __attribute__((noinline))

static long call(long nr, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int word, pipes[2], sockets[2];
static pid_t child;

NOINLINE long wait_futex(long n) {
    struct timespec t = {0, 4000000};
    return call(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 0, (long)&t, 0, 0) + n;
}
NOINLINE long wait_sleep(long n) {
    struct timespec t = {0, 5000000};
    return call(SYS_nanosleep, (long)&t, 0, 0, 0, 0, 0) + n;
}
NOINLINE long wait_pipe(long n) {
    char c;
    return call(SYS_read, pipes[0], (long)&c, 1, 0, 0, 0) + n;
}
NOINLINE long wait_socket(long n) {
    char c;
    return call(SYS_read, sockets[0], (long)&c, 1, 0, 0, 0) + n;
}
NOINLINE long wait_poll(long n) {
    struct pollfd p = {pipes[0], POLLIN, 0};
    return call(SYS_poll, (long)&p, 1, 3, 0, 0, 0) + n;
}
NOINLINE long wait_child(long n) {
    int status;
    return call(SYS_wait4, child, (long)&status, 0, 0, 0, 0) + n;
}

static void measure(const char *name, long (*wait)(long)) {
    long all = 0;
    for (long n = 0; n < ROUNDS; n++) {
        if (wait == wait_pipe || wait == wait_socket || wait == wait_child) {
            int to = wait == wait_pipe ? pipes[1] : sockets[1];
            child = fork();
            if (child == 0) {
                usleep(4000);
                if (wait != wait_child && write(to, "x", 1) != 1) _exit(1);
                _exit(0);
            }
        }
        long from = now();
        wait(n);
        all += now() - from;
        if (wait == wait_pipe || wait == wait_socket) waitpid(child, 0, 0);
    }
    printf("%s %ld\n", name, all);
}

static pid_t spinners[CPU_SETSIZE];

/* Where they may move, two can be on one CPU, and the other is idle until they are balanced. */
static int spin(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 0;
    int count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        pid_t pid = fork();
        if (pid == 0) {
            struct sched_param p = {0};
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            prctl(PR_SET_NAME, "spinner");
            sched_setaffinity(0, sizeof one, &one);
            sched_setscheduler(0, SCHED_IDLE, &p);
            for (volatile long i = 0;; i++) {}
        }
        if (pid > 0) spinners[count++] = pid;
    }
    return count;
}

int main(void) {
    int spinning = spin();
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) return 1;
    measure("futex", wait_futex);
    measure("sleep", wait_sleep);
    measure("pipe", wait_pipe);
    measure("socket", wait_socket);
    measure("poll", wait_poll);
    measure("child", wait_child);
    for (int n = 0; n < spinning; n++) {
        kill(spinners[n], SIGKILL);
        waitpid(spinners[n], 0, 0);
    }
    return 0;
}
