// A thread is woken five times within one epoll_wait and finds nothing: who writes the counter reads
// it again, on the same CPU and before it.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int counter, polled, tid;
static void become(int policy, int priority) {
    struct sched_param p = { .sched_priority = priority };
    sched_setscheduler(0, policy, &p);
}
static void asleep(void) {
    char path[64], state = 0; FILE *f;
    struct timespec ms = { 0, 1000000 };
    do {
        nanosleep(&ms, 0);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
        f = fopen(path, "r"); if (f) { if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0; fclose(f); }
    } while (state != 'S');
}
static void *waiter(void *unused) {
    struct epoll_event e;
    become(SCHED_IDLE, 0);
    pthread_setname_np(pthread_self(), "spurious-wait");
    __atomic_store_n(&tid, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    epoll_wait(polled, &e, 1, -1);
    return unused;
}
int main(void) {
    cpu_set_t one; CPU_ZERO(&one); CPU_SET(sched_getcpu(), &one); sched_setaffinity(0, sizeof one, &one);
    counter = eventfd(0, EFD_NONBLOCK); polled = epoll_create1(0);
    struct epoll_event e = { .events = EPOLLIN };
    epoll_ctl(polled, EPOLL_CTL_ADD, counter, &e);
    pthread_t t; pthread_create(&t, 0, waiter, 0);
    while (!__atomic_load_n(&tid, __ATOMIC_SEQ_CST)) usleep(1000);
    become(SCHED_FIFO, 1);
    uint64_t n = 1;
    for (int i = 0; i < 5; i++) { asleep(); write(counter, &n, 8); read(counter, &n, 8); }
    asleep(); write(counter, &n, 8);
    pthread_join(t, 0);
}
