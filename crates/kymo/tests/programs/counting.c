/* Counts in threads, in signal handlers, and in forked children that end in different ways:
 * counting THREADS ROUNDS. Each thread counts ROUNDS of each; each of four children does ROUNDS. */
#include "kymo_counter.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

KYMO_COUNTER(counting, hits, "All hits.")
KYMO_COUNTER_BY(counting, by_thread, "Hits of a thread.")
KYMO_COUNTER_BY(counting, by_end, "Hits of a child, by how it ended.")
KYMO_HISTOGRAM(counting, numbers, "Numbers of rounds.")
KYMO_HISTOGRAM_BY(counting, odd, "The same, by whether they are odd.")
KYMO_COUNTER(counting, handled, "Signals.")
KYMO_COUNTER(counting, raised, "Signals, as they were raised.")

static int rounds;

static void handler(int number)
{
    (void)number;
    kymo_count(counting, handled);
    kymo_count_number(counting, by_thread, -1);
}

static void *count(void *at)
{
    const int number = *(int *)at;
    for (int i = 0; i < rounds; i++) {
        kymo_count(counting, hits);
        kymo_count_number(counting, by_thread, number);
        kymo_sample(counting, numbers, i);
        kymo_sample_text(counting, odd, i, i % 2 ? "odd" : "even");
        if (i % 1024 == 0) {
            kymo_count(counting, raised);
            raise(SIGUSR1);
        }
    }
    return NULL;
}

static void child(int how)
{
    static const char *const ends[] = { "exit", "_exit", "kill", NULL };
    for (int i = 0; i < rounds; i++)
        kymo_count_text(counting, by_end, ends[how]);
    if (how == 0)
        exit(0);
    if (how == 1)
        _exit(0);
    kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
    pthread_t threads[64];
    int numbers[64];
    const int thread_count = argc > 1 ? atoi(argv[1]) : 4;
    rounds = argc > 2 ? atoi(argv[2]) : 1000;
    signal(SIGUSR1, handler);
    for (int i = 0; i < thread_count && i < 64; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, count, &numbers[i]))
            return 1;
    }
    for (int i = 0; i < thread_count && i < 64; i++)
        pthread_join(threads[i], NULL);
    for (int how = 0; how < 4; how++) {
        int status;
        const pid_t pid = fork();
        if (pid == 0)
            child(how);
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return 1;
    }
    return 0;
}
