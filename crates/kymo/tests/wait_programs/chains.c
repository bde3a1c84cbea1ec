/* Chains of waits: thread 0 waits for thread 1, which waits for thread 2, and so on; the last one
 * runs, sleeps or writes to disk, and wakes the one before it. Each thread reads the clock before
 * and after each of its calls, so that the events of the kernel lie between two of its times.
 * Prints for each chain: chain KIND LEAF DEPTH BUSY, then for each thread: TID and the times before
 * and after its wait, and before and after it woke the one before it.
 * Meanwhile a process of the least priority keeps each CPU from being idle, for some kernels leave
 * out events that happen in the idle task; and of half of the chains a thread of theirs spins. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define MOST 8
enum kind { FUTEX, PIPE, SOCKET, TCP, EVENTFD, POLL, TTY, KINDS };
enum leaf { RUN, TIMER, DISK };
static const char *kinds[] = {"futex", "pipe", "socket", "tcp", "eventfd", "poll", "tty"};
static const char *leaves[] = {"run", "timer", "disk"};

struct link {
    int number, depth;
    atomic_int tid, waits;
    enum kind kind;
    enum leaf leaf;
    int in, out; /* what this thread waits for, and what it wakes the one before with */
    atomic_int *in_word, *out_word;
    long before_wait, after_wait, before_wake, after_wake;
};

static struct link links[MOST];
static atomic_int words[MOST];
static atomic_int busy_on, started;
static int busy_tid;
static const char *file;

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void connect_tcp(int ends[2]) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int on = 1, server = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&a, size) || listen(server, 1)) fail("listen");
    getsockname(server, (struct sockaddr *)&a, &size);
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[1], (struct sockaddr *)&a, size)) fail("connect");
    ends[0] = accept(server, 0, 0);
    setsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(server);
}

static void open_tty(int ends[2]) {
    struct termios raw;
    ends[1] = posix_openpt(O_RDWR | O_NOCTTY);
    if (ends[1] < 0 || grantpt(ends[1]) || unlockpt(ends[1])) fail("pty");
    ends[0] = open(ptsname(ends[1]), O_RDWR | O_NOCTTY);
    tcgetattr(ends[0], &raw);
    cfmakeraw(&raw);
    tcsetattr(ends[0], TCSANOW, &raw);
}

static void open_ends(enum kind kind, int ends[2]) {
    ends[0] = ends[1] = -1;
    if (kind == PIPE || kind == POLL) {
        if (pipe(ends)) fail("pipe");
    } else if (kind == SOCKET) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) fail("socketpair");
    } else if (kind == TCP) {
        connect_tcp(ends);
    } else if (kind == EVENTFD) {
        ends[0] = eventfd(0, 0);
        ends[1] = dup(ends[0]);
    } else if (kind == TTY) {
        open_tty(ends);
    }
}

static void wait_for_next(struct link *l) {
    char buffer[8];
    l->before_wait = now();
    atomic_store(&l->waits, 1);
    if (l->kind == FUTEX) {
        while (!atomic_load(l->in_word)) syscall(SYS_futex, l->in_word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
    } else if (l->kind == POLL) {
        struct pollfd p = {l->in, POLLIN, 0};
        poll(&p, 1, -1);
    } else if (read(l->in, buffer, l->kind == EVENTFD ? 8 : 1) <= 0) {
        fail("read");
    }
    l->after_wait = now();
}

static void wake_the_one_before(struct link *l) {
    unsigned long one = 1;
    if (l->kind == FUTEX) atomic_store(l->out_word, 1);
    l->before_wake = now();
    if (l->kind == FUTEX) {
        syscall(SYS_futex, l->out_word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    } else if (write(l->out, &one, l->kind == EVENTFD ? 8 : 1) <= 0) {
        fail("write");
    }
    l->after_wake = now();
}

static void spin(long nanos) {
    for (long until = now() + nanos; now() < until;) {}
}

/* Waits until all others sleep in their waits. */
static void let_others_wait(int count) {
    for (int n = 0; n < count; n++) {
        char path[64], text[256], *state = text;
        do {
            sched_yield();
            if (!atomic_load(&links[n].waits)) continue;
            snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&links[n].tid));
            int fd = open(path, O_RDONLY), size = read(fd, text, sizeof text - 1);
            close(fd);
            text[size > 0 ? size : 0] = 0;
            state = strrchr(text, ')');
        } while (!atomic_load(&links[n].waits) || !state || state[2] != 'S');
    }
}

__attribute__((noinline)) static void do_leaf(struct link *l) {
    let_others_wait(l->depth);
    l->before_wait = now();
    if (l->leaf == TIMER) {
        usleep(2000);
    } else if (l->leaf == DISK) {
        int fd = open(file, O_CREAT | O_TRUNC | O_WRONLY, 0600);
        static char block[65536];
        memset(block, l->depth, sizeof block);
        if (fd < 0 || write(fd, block, sizeof block) < 0 || fsync(fd)) fail(file);
        close(fd);
    } else {
        spin(1500000);
    }
    l->after_wait = now();
}

static void *follow(void *arg) {
    struct link *l = arg;
    atomic_store(&l->tid, syscall(SYS_gettid));
    /* Nobody is made while the first one waits. */
    atomic_fetch_add(&started, 1);
    while (atomic_load(&started) <= l->depth + 1) sched_yield();
    if (l->number == l->depth) {
        do_leaf(l);
    } else {
        wait_for_next(l);
        spin(100000);
    }
    if (l->number > 0) wake_the_one_before(l);
    return 0;
}

static void *be_busy(void *arg) {
    prctl(PR_SET_NAME, "innocent");
    busy_tid = syscall(SYS_gettid);
    while (atomic_load(&busy_on)) spin(100000);
    return arg;
}

static void run_chain(enum kind kind, enum leaf leaf, int depth, int busy) {
    pthread_t threads[MOST], other;
    int ends[MOST][2];
    atomic_store(&busy_on, busy);
    if (busy) pthread_create(&other, 0, be_busy, 0);
    for (int n = 0; n <= depth; n++) {
        atomic_store(&words[n], 0);
        open_ends(kind, ends[n]);
        links[n] = (struct link){.number = n, .depth = depth, .kind = kind, .leaf = leaf,
                                 .in = ends[n][0], .in_word = &words[n]};
        if (n > 0) {
            links[n].out = ends[n - 1][1];
            links[n].out_word = &words[n - 1];
        }
    }
    atomic_store(&started, 0);
    for (int n = 0; n <= depth; n++) pthread_create(&threads[n], 0, follow, &links[n]);
    atomic_fetch_add(&started, 1);
    for (int n = 0; n <= depth; n++) pthread_join(threads[n], 0);
    atomic_store(&busy_on, 0);
    if (busy) pthread_join(other, 0);
    printf("chain %s %s %d %d\n", kinds[kind], leaves[leaf], depth, busy ? busy_tid : 0);
    for (int n = 0; n <= depth; n++) {
        struct link *l = &links[n];
        printf("%d %ld %ld %ld %ld\n", atomic_load(&l->tid), l->before_wait, l->after_wait, l->before_wake,
               l->after_wake);
        close(ends[n][0]);
        close(ends[n][1]);
    }
}

#define MOST_CPUS 256
static pid_t spinners[MOST_CPUS];

static int start_spinners(void) {
    int cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (cpus > MOST_CPUS) cpus = MOST_CPUS;
    for (int n = 0; n < cpus; n++) {
        spinners[n] = fork();
        if (spinners[n] == 0) {
            struct sched_param p = {0};
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            prctl(PR_SET_NAME, "spinner");
            sched_setscheduler(0, SCHED_IDLE, &p);
            for (volatile long i = 0;; i++) {}
        }
    }
    return cpus;
}

int main(int argc, char **argv) {
    file = argc > 1 ? argv[1] : "chains.out";
    int cpus = start_spinners();
    for (int busy = 0; busy < 2; busy++) {
        for (int depth = 1; depth <= 6; depth++) {
            for (int kind = 0; kind < KINDS; kind++) run_chain(kind, RUN, depth, busy);
            run_chain(FUTEX, TIMER, depth, busy);
            run_chain(PIPE, DISK, depth, busy);
        }
    }
    for (int n = 0; n < cpus; n++) {
        kill(spinners[n], SIGKILL);
        waitpid(spinners[n], 0, 0);
    }
    unlink(file);
    return 0;
}
