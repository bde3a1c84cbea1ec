/* How long an event of LTTng-UST takes: `pace KIND EVENTS THREADS`. Prints ns per event
 * of a thread, of its own CPU time. With KIND `paced` it hits so many EVENTS a second, with KIND
 * `flat` as many as its threads can, for four seconds. The counterpart of crates/kymo-tracepoint/examples/pace.rs. */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "pace-tp.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *kind;
static long events;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void loop(long n)
{
    if (!strcmp(kind, "string"))
        for (long i = 0; i < n; i++)
            lttng_ust_tracepoint(pace, text, i, "fifteen letters");
    else
        for (long i = 0; i < n; i++)
            lttng_ust_tracepoint(pace, two, i, i + 1);
}

static void handler(int signal)
{
    (void)signal;
    loop(events);
}

static void *thread(void *result)
{
    loop(events / 10);
    double start = now();
    if (!strcmp(kind, "handler"))
        raise(SIGUSR1);
    else
        loop(events);
    *(double *)result = (now() - start) / events;
    return NULL;
}

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

#define SECONDS 4

/* So many events a second, in bursts of a millisecond's. */
static void paced(long per_second)
{
    struct timespec pause = { 0, 1000000 };
    double start = wall();
    long done = 0;
    while (wall() - start < SECONDS) {
        long due = (wall() - start) * per_second;
        if (due > done) {
            loop(due - done);
            done = due;
        }
        nanosleep(&pause, NULL);
    }
    printf("%ld %.3f\n", done, wall() - start);
}

static void *flat(void *result)
{
    double start = wall();
    long done = 0;
    for (; wall() - start < SECONDS; done += 1000)
        loop(1000);
    *(double *)result = done;
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    kind = argv[1];
    if (!strcmp(kind, "paced")) {
        paced(atol(argv[2]));
        return 0;
    }
    events = atol(argv[2]);
    int threads = atoi(argv[3]);
    double times[64], sum = 0;
    pthread_t ids[64];
    signal(SIGUSR1, handler);
    void *(*run)(void *) = strcmp(kind, "flat") ? thread : flat;
    double start = wall();
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, run, &times[i]);
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += times[i];
    }
    if (run == flat) {
        printf("%.0f %.3f\n", sum, wall() - start);
        return 0;
    }
    printf("%.3f\n", sum / threads);
    return 0;
}
