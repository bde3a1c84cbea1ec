/* All that can happen to a program at once: more threads than processors, which come and go and are
 * moved, timers whose handlers hit tracepoints, forks with and without the C library, execs, a
 * library that is loaded and unloaded. `stress MILLISECONDS LIBRARY REPORTS`: each process writes
 * how many events it has produced to REPORTS/PID.IMAGE, where IMAGE is 1 behind an exec. */
#define _GNU_SOURCE
#include "kymo_tracepoint.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HIT_FIELDS(F) F(u32, writer) F(u64, number) F(str, noise) F(u32, sum)
KYMO_TRACEPOINT(stress, hit, KYMO_INFO, "{writer} {number}", HIT_FIELDS)

enum { THREADS = 14, HANDLER = 1 << 20 };
static char letters[64];
static const char *reports, *library_path;
static atomic_int stop;
/* Shared with children that write into this process's rings. */
static atomic_ullong *produced;
static __thread uint32_t writer;
static __thread uint64_t numbers[2];
static atomic_uint writers = 1;

static void produce(uint32_t writer_, uint64_t number)
{
    const char *noise = letters + number % 61;
    uint32_t sum = writer_ * 31 + (uint32_t)number;
    for (const char *c = noise; *c; c++)
        sum = sum * 33 + (unsigned char)*c;
    atomic_fetch_add(produced, 1);
    kymo_emit(stress, hit, writer_, number, noise, sum);
}

static void handler(int signal)
{
    (void)signal;
    if (writer)
        produce(writer + HANDLER, numbers[1]++);
}

static void report(int image)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%d.%d", reports, (int)getpid(), image);
    FILE *file = fopen(path, "w");
    if (!file)
        _exit(3);
    fprintf(file, "%llu\n", (unsigned long long)atomic_load(produced));
    fclose(file);
}

static atomic_ullong *counter(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        _exit(4);
    return page;
}

static void start_over(void)
{
    writer = atomic_fetch_add(&writers, 1);
    numbers[0] = numbers[1] = 0;
}

static void move(unsigned turn)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(turn % sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* One child: as fork makes it, with an exec behind it, or with the parent's rings. */
static void spawn(unsigned turn)
{
    int bare = turn % 3 == 2;
    pid_t child = bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (child == 0) {
        /* Its writer's numbers would be those of its parent's thread. Timers are not inherited. */
        writer = bare ? 5000 + turn : 1;
        numbers[0] = numbers[1] = 0;
        if (!bare)
            produced = counter();
        for (int i = 0; i < 300; i++)
            produce(writer, numbers[0]++);
        if (bare)
            _exit(0);
        report(0);
        if (turn % 3 == 1)
            execl("/proc/self/exe", "stress", "-", "-", reports, NULL);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status)
        _exit(5);
}

static void *thread(void *argument)
{
    unsigned turn = (unsigned)(uintptr_t)argument;
    start_over();
    struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    struct itimerspec time = { { 0, 90000 + 7000 * turn }, { 0, 50000 } };
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &time, NULL))
        _exit(6);
    for (unsigned i = 0; i < 3000 && !atomic_load(&stop); i++) {
        produce(writer, numbers[0]++);
        if (i % 256 == 0)
            move(turn++);
    }
    timer_delete(timer);
    /* What is on its way comes now. */
    sched_yield();
    return NULL;
}

static void *loader(void *argument)
{
    (void)argument;
    while (!atomic_load(&stop)) {
        void *library = dlopen(library_path, RTLD_NOW);
        void (*send_parcel)(int) = library ? (void (*)(int))dlsym(library, "send_parcel") : NULL;
        if (!send_parcel)
            _exit(7);
        for (int i = 0; i < 20; i++)
            send_parcel(i);
        dlclose(library);
        usleep(500);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    library_path = argv[2];
    reports = argv[3];
    for (int i = 0; i < 63; i++)
        letters[i] = (char)('A' + i % 50);
    produced = counter();
    if (argv[1][0] == '-') {
        writer = 1;
        for (int i = 0; i < 200; i++)
            produce(writer, numbers[0]++);
        report(1);
        return 0;
    }
    signal(SIGUSR1, handler);
    pthread_t loads;
    pthread_create(&loads, NULL, loader, NULL);
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long ms = atol(argv[1]);
    unsigned turn = 0;
    do {
        pthread_t ids[THREADS];
        for (unsigned i = 0; i < THREADS; i++)
            pthread_create(&ids[i], NULL, thread, (void *)(uintptr_t)(turn + i));
        for (int i = 0; i < 3; i++)
            spawn(turn++);
        for (int i = 0; i < THREADS; i++)
            pthread_join(ids[i], NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - end.tv_sec) * 1000 + (now.tv_nsec - end.tv_nsec) / 1000000 < ms);
    atomic_store(&stop, 1);
    pthread_join(loads, NULL);
    report(0);
    return 0;
}
