/* Callbacks that come and go while threads hit their tracepoint; with LIBRARY a library that is
 * unloaded with its callbacks registered. Ends with a message where something is wrong. */
#include "kymo_tracepoint.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(condition)                                                                       \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                           \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

typedef void watcher(void *data, uint64_t number);
int watch(watcher *probe, void *data);

#ifdef LIBRARY
KYMO_TRACEPOINT_EVENT(calls, own, KYMO_TP_PROTO(uint64_t number), KYMO_TP_ARGS(number),
                      KYMO_TP_FIELDS(kymo_field_integer(uint64_t, number, number)),
                      KYMO_TP_PRINT("{number}"))

static void on_hit(void *data, uint64_t number)
{
    (void)number;
    __atomic_add_fetch((int *)data, 1, __ATOMIC_SEQ_CST);
}

int load(int *hits);
int load(int *hits)
{
    const int result = watch(on_hit, hits);
    const int own = kymo_register(calls, own, on_hit, hits);
    kymo_emit(calls, own, 1);
    return result ? result : own;
}
#else
KYMO_TRACEPOINT_EVENT(calls, hit, KYMO_TP_PROTO(uint64_t number), KYMO_TP_ARGS(number),
                      KYMO_TP_FIELDS(kymo_field_integer(uint64_t, number, number)),
                      KYMO_TP_PRINT("{number}"), KYMO_TP_CONDITION(number != 7))
KYMO_TRACEPOINT_EVENT(calls, quiet, KYMO_TP_PROTO(void), KYMO_TP_ARGS(), KYMO_TP_FIELDS(),
                      KYMO_TP_PRINT(""))
KYMO_TRACEPOINT_EVENT(calls, started, KYMO_TP_PROTO(void), KYMO_TP_ARGS(), KYMO_TP_FIELDS(),
                      KYMO_TP_PRINT(""))

enum { THREADS = 3, ROUNDS = 100 };
static volatile int done;
static uint64_t produced, seen;

int watch(watcher *probe, void *data)
{
    return kymo_register(calls, hit, probe, data);
}

static void *hitter(void *none)
{
    uint64_t count = 0;
    while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
        kymo_emit(calls, hit, 8);
        kymo_emit(calls, hit, 7);
        count++;
    }
    __atomic_add_fetch(&produced, count, __ATOMIC_SEQ_CST);
    return none;
}

static void see(void *data, uint64_t number)
{
    MUST(number == 8);
    __atomic_add_fetch((uint64_t *)data, 1, __ATOMIC_SEQ_CST);
}

/* Its data must be there as long as it is called. */
static void check(void *data, uint64_t number)
{
    (void)number;
    MUST(((volatile uint64_t *)data)[0] == 0x600d);
    ((volatile uint64_t *)data)[1] = 1;
}

static void come_and_go(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        volatile uint64_t *data = (volatile uint64_t *)malloc(16);
        data[0] = 0x600d;
        data[1] = 0;
        MUST(kymo_register(calls, hit, check, (void *)data) == 0);
        while (!data[1])
            usleep(10);
        MUST(kymo_unregister(calls, hit, check, (void *)data) == 0);
        MUST(kymo_synchronize() == 0);
        data[0] = 0xbad;
        free((void *)data);
    }
}

static void unload(const char *path)
{
    static int hits;
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(path, RTLD_NOW);
        int (*load)(int *) = NULL;
        MUST(library);
        *(void **)&load = dlsym(library, "load");
        hits = 0;
        MUST(load(&hits) == 0);
        while (__atomic_load_n(&hits, __ATOMIC_SEQ_CST) < 100)
            usleep(10);
        MUST(dlclose(library) == 0);
        /* Not called any more, and not there any more. */
        const int last = hits;
        usleep(1000);
        MUST(last == hits);
        MUST(!dlopen(path, RTLD_NOW | RTLD_NOLOAD));
    }
}

static void once(void *data)
{
    ++*(int *)data;
    MUST(kymo_unregister(calls, quiet, once, data) == 0);
    MUST(kymo_synchronize() == -EDEADLK);
}

static void forking(void *data)
{
    const pid_t child = fork();
    MUST(child >= 0);
    *(pid_t *)data = child;
}

static void nothing(void *data)
{
    (void)data;
}

static void wrong_use(void)
{
    static char many[1024];
    int calls = 0, status;
    pid_t child;
    MUST(kymo_register(calls, quiet, NULL, NULL) == -EINVAL);
    MUST(kymo_unregister(calls, quiet, NULL, NULL) == -EINVAL);
    MUST(kymo_unregister(calls, quiet, nothing, NULL) == -ENOENT);
    for (int i = 0; i < 1024; i++)
        MUST(kymo_register(calls, quiet, nothing, many + i) == 0);
    MUST(kymo_register(calls, quiet, nothing, many) == -EEXIST);
    MUST(kymo_register(calls, quiet, nothing, NULL) == -ENOSPC);
    MUST(kymo_enabled(calls, quiet));
    for (int i = 0; i < 1024; i++)
        MUST(kymo_unregister(calls, quiet, nothing, many + i) == 0);
    MUST(!kymo_enabled(calls, quiet));
    MUST(kymo_register(calls, quiet, once, &calls) == 0);
    kymo_emit(calls, quiet);
    kymo_emit(calls, quiet);
    MUST(calls == 1 && kymo_synchronize() == 0);
    /* A child that was forked while others, and itself, were calling. */
    MUST(kymo_register(calls, quiet, forking, &child) == 0);
    kymo_emit(calls, quiet);
    MUST(kymo_unregister(calls, quiet, forking, &child) == 0);
    MUST(kymo_synchronize() == 0);
    if (child == 0)
        _exit(42);
    MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 42);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    MUST(argc == 2);
    kymo_emit(calls, started);
    MUST(kymo_register(calls, hit, see, &seen) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, hitter, NULL) == 0);
    come_and_go();
    unload(argv[1]);
    wrong_use();
    done = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* Whoever stays is called each time, whatever comes and goes. */
    MUST(produced == seen && seen > 0);
    puts("fine");
    return 0;
}
#endif
