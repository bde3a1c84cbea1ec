// Programs with one known cause each: cases NAME.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <resolv.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, idle_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER, ready = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static int done, event;

static void ms(long n) { struct timespec t = {n / 1000, n % 1000 * 1000000}; nanosleep(&t, 0); }

// Milliseconds of its own CPU time, whatever else runs.
__attribute__((noinline)) static void compute(long n) {
  struct timespec a, b;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
  do {
    for (int i = 0; i < 20000; i++) sink += i * i;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
  } while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < n);
}
static void *idle(void *a) { pthread_mutex_lock(&idle_lock); for (;;) pthread_cond_wait(&never, &idle_lock); return a; }
static void *idle_that_ran(void *a) { compute(2); return idle(a); }
static void *computes(void *a) { compute(300); return a; }
static void *ticks(void *a) { for (;;) ms(5); return a; }
static void *sleeps(void *a) { ms(400); return a; }
__attribute__((noinline)) static void *holder(void *a) { pthread_mutex_lock(&lock); ms(400); pthread_mutex_unlock(&lock); return a; }
static void *convoy(void *a) { for (int i = 0; i < 60; i++) { pthread_mutex_lock(&lock); compute(2); pthread_mutex_unlock(&lock); } return a; }
static void *produces(void *a) { compute(300); pthread_mutex_lock(&lock); done = 1; pthread_cond_signal(&ready); pthread_mutex_unlock(&lock); return a; }
static void *produces_late(void *a) { ms(400); return produces(a) ; }
static void *signals_late(void *a) { ms(400); pthread_mutex_lock(&lock); done = 1; pthread_cond_signal(&ready); pthread_mutex_unlock(&lock); return a; }
static void *writes_event(void *a) { unsigned long one = 1; ms(400); if (write(event, &one, 8) < 0) _exit(1); return a; }
static void *meets(void *a) { if (a) compute(300); pthread_barrier_wait(&barrier); return a; }
static void *meets_late(void *a) { if (a) ms(400); pthread_barrier_wait(&barrier); return a; }

static struct { long a, b; } line __attribute__((aligned(64)));
static void *writes_a(void *a) { for (long i = 0; i < 150000000; i++) (*(volatile long *)&line.a)++; return a; }
static void *writes_b(void *a) { for (long i = 0; i < 150000000; i++) (*(volatile long *)&line.b)++; return a; }
// Holds the lock with the least weight, while others with more of it fill the CPUs.
static void *weak(void *a) { setpriority(PRIO_PROCESS, gettid(), 19); pthread_mutex_lock(&lock); done = 1; compute(4); pthread_mutex_unlock(&lock); done = 2; return a; }
static void *strong(void *a) { while (done < 2) compute(5); return a; }
static void *worker(void *a) { for (;;) { pthread_mutex_lock(&lock); while (!done) pthread_cond_wait(&ready, &lock); done--; pthread_mutex_unlock(&lock); compute(3); } return a; }
static void *endless_convoy(void *a) { for (;;) convoy(a); return a; }
static void *forever(void *a) { for (;;) compute(100); return a; }

static pthread_t start(void *(*f)(void *), void *a) { pthread_t t; pthread_create(&t, 0, f, a); return t; }
static void many(int n, void *(*f)(void *)) { while (n--) start(f, 0); }
static void join(int n, void *(*f)(void *)) { pthread_t t[16]; for (int i = 0; i < n; i++) t[i] = start(f, 0); for (int i = 0; i < n; i++) pthread_join(t[i], 0); }
static void in_child(void (*f)(long), long n) { pid_t p = fork(); if (!p) { f(n); _exit(0); } waitpid(p, 0, 0); }
static void grandchild(long n) { in_child(ms, n); }
static void busy_grandchild(long n) { in_child(compute, n); }
static void await(void) { pthread_mutex_lock(&lock); while (!done) pthread_cond_wait(&ready, &lock); pthread_mutex_unlock(&lock); }
static void tick(int signal) { (void)signal; }
static void alarm_in(long n) { struct itimerspec t = {{0, 0}, {n / 1000, n % 1000 * 1000000}}; timer_t id; signal(SIGALRM, tick); timer_create(CLOCK_MONOTONIC, 0, &id); timer_settime(id, 0, &t, 0); }

static void say_ready(void) { puts("ready"); fflush(stdout); }
// A process that is no child of this one.
static int is_stranger(void) { pid_t p = fork(); if (p) { waitpid(p, 0, 0); return 0; } if (fork()) _exit(0); close(1); alarm(20); return 1; }
static int listener(struct sockaddr_in *at) { socklen_t size = sizeof *at; int s = socket(AF_INET, SOCK_STREAM, 0); memset(at, 0, size); at->sin_family = AF_INET; at->sin_addr.s_addr = htonl(INADDR_LOOPBACK); if (s < 0 || bind(s, (void *)at, size) || listen(s, 8) || getsockname(s, (void *)at, &size)) _exit(1); return s; }
static int connected(struct sockaddr_in *at) { int s = socket(AF_INET, SOCK_STREAM, 0); if (connect(s, (void *)at, sizeof *at)) _exit(1); return s; }

int main(int argc, char **v) {
  char *file = argc > 2 ? v[2] : "file", c, block[65536] = {0};
  int fd[2], n;
#define CASE(name) if (argc > 1 && !strcmp(v[1], name))
  CASE("compute") compute(300);
  CASE("compute-little") compute(60);
  CASE("compute-2") { start(computes, 0); compute(300); }
  CASE("idle-pool") { many(4, idle); compute(300); }
  CASE("idle-pool-ran") { many(4, idle_that_ran); compute(300); }
  CASE("timer-helper") { many(2, ticks); compute(300); }
  CASE("sleep") ms(400);
  CASE("sleep-loop") for (n = 0; n < 40; n++) ms(10);
  CASE("sleep-idle-pool") { many(4, idle); ms(400); }
  CASE("lock-sleep") { start(holder, 0); ms(20); pthread_mutex_lock(&lock); }
  CASE("lock-idle") { many(4, idle_that_ran); start(holder, 0); ms(20); pthread_mutex_lock(&lock); }
  CASE("convoy") join(4, convoy);
  CASE("convoy-idle") { many(4, idle); join(4, convoy); }
  CASE("join-compute") join(1, computes);
  CASE("join-sleep") join(3, sleeps);
  CASE("cond-compute") { start(produces, 0); await(); }
  CASE("cond-sleep") { start(signals_late, 0); await(); }
  CASE("cond-both") { start(produces_late, 0); await(); }
  CASE("barrier-compute") { pthread_barrier_init(&barrier, 0, 3); start(meets, 0); start(meets, "c"); meets(0); }
  CASE("barrier-sleep") { pthread_barrier_init(&barrier, 0, 3); start(meets_late, 0); start(meets_late, "c"); meets(0); }
  CASE("eventfd") { event = eventfd(0, 0); start(writes_event, 0); if (read(event, block, 8) < 0) return 1; }
  CASE("fsync") { n = open(file, O_CREAT | O_WRONLY, 0600); for (int i = 0; i < 200; i++) if (write(n, block, 4096) < 0 || fsync(n)) return 1; unlink(file); }
  CASE("direct") { n = open(file, O_CREAT | O_RDWR, 0600); for (int i = 0; i < 256; i++) if (write(n, block, 65536) < 0) return 1; fsync(n); close(n); n = open(file, O_RDONLY | O_DIRECT); char *page = aligned_alloc(4096, 4096); for (unsigned i = 0; i < 4000; i++) if (pread(n, page, 4096, i * 7919 % 4096 * 4096L) < 0) return 1; unlink(file); }
  CASE("cold-map") { n = open(file, O_CREAT | O_RDWR, 0600); for (int i = 0; i < 256; i++) if (write(n, block, 65536) < 0) return 1; fsync(n); posix_fadvise(n, 0, 0, POSIX_FADV_DONTNEED); char *m = mmap(0, 16 << 20, PROT_READ, MAP_SHARED, n, 0); madvise(m, 16 << 20, MADV_RANDOM); for (unsigned i = 0; i < 4096; i++) sink += m[i * 1543 % 4096 * 4096L]; unlink(file); }
  CASE("semaphore-of-child") { sem_t *s = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); sem_init(s, 1, 0); if (!fork()) { for (n = 0; n < 3; n++) { compute(100); sem_post(s); } return 0; } for (n = 0; n < 3; n++) sem_wait(s); wait(0); }
  CASE("faults") for (n = 0; n < 8; n++) { char *m = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); for (long i = 0; i < 64 << 20; i += 4096) m[i] = 1; munmap(m, 64 << 20); }
  CASE("system-calls") { n = open("/dev/zero", O_RDONLY); for (int i = 0; i < 60000; i++) if (read(n, block, 65536) < 0) return 1; }
  CASE("child-compute") in_child(compute, 300);
  CASE("child-sleep") in_child(ms, 400);
  CASE("grandchild-sleep") in_child(grandchild, 400);
  CASE("grandchild-compute") in_child(busy_grandchild, 300);
  CASE("fork-storm") for (n = 0; n < 150; n++) in_child(compute, 2);
  CASE("pipe-producer-sleeps") { if (pipe(fd)) return 1; if (!fork()) { for (n = 0; n < 20; n++) { ms(20); if (write(fd[1], "x", 1) < 0) return 1; } return 0; } close(fd[1]); while (read(fd[0], &c, 1) == 1); }
  CASE("pipe-producer-computes") { if (pipe(fd)) return 1; if (!fork()) { for (n = 0; n < 10; n++) { compute(30); if (write(fd[1], "x", 1) < 0) return 1; } return 0; } close(fd[1]); while (read(fd[0], &c, 1) == 1); }
  CASE("pipe-consumer-sleeps") { if (pipe(fd)) return 1; if (!fork()) { close(fd[1]); for (;;) { if (read(fd[0], block, 65536) <= 0) return 0; ms(20); } } close(fd[0]); for (n = 0; n < 25; n++) if (write(fd[1], block, 65536) < 0) return 1; }
  CASE("peer-sleeps") { if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) return 1; if (!fork()) { for (n = 0; n < 10; n++) { if (read(fd[1], &c, 1) < 1) return 1; ms(40); if (write(fd[1], "x", 1) < 0) return 1; } return 0; } for (n = 0; n < 10; n++) if (write(fd[0], "x", 1) < 0 || read(fd[0], &c, 1) < 1) return 1; }
  CASE("flock-sleeps") { n = open(file, O_CREAT | O_RDWR, 0600); if (pipe(fd)) return 1; if (!fork()) { int own = open(file, O_RDWR); flock(own, LOCK_EX); if (write(fd[1], "x", 1) < 0) return 1; ms(400); return 0; } if (read(fd[0], &c, 1) < 1) return 1; flock(n, LOCK_EX); unlink(file); }
  CASE("timerfd") { struct itimerspec t = {{0, 20000000}, {0, 20000000}}; n = timerfd_create(CLOCK_MONOTONIC, 0); timerfd_settime(n, 0, &t, 0); for (int i = 0; i < 20; i++) if (read(n, block, 8) < 0) return 1; }
  CASE("poll") for (n = 0; n < 8; n++) poll(0, 0, 50);
  CASE("select") for (n = 0; n < 8; n++) { struct timeval t = {0, 50000}; select(0, 0, 0, 0, &t); }
  CASE("pause") { alarm_in(400); pause(); }
  CASE("stopped") { pid_t p = getpid(); if (!fork()) { ms(400); kill(p, SIGCONT); return 0; } raise(SIGSTOP); }
  CASE("semaphore") { struct sembuf b = {0, -1, 0}; struct timespec t = {0, 400000000}; n = semget(IPC_PRIVATE, 1, 0600); semtimedop(n, &b, 1, &t); semctl(n, 0, IPC_RMID); }
  CASE("cond-timeout") { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); t.tv_sec++; pthread_mutex_lock(&lock); pthread_cond_timedwait(&ready, &lock, &t); }
  CASE("yield") { struct timespec a; for (n = 0; n < 200000; n++) { sched_yield(); clock_gettime(CLOCK_MONOTONIC, &a); } compute(100); }
  CASE("false-sharing") { pthread_t a = start(writes_a, 0), b = start(writes_b, 0); pthread_join(a, 0); pthread_join(b, 0); }
  CASE("inversion") { start(weak, 0); while (!done) ms(1); many(4, strong); ms(5); pthread_mutex_lock(&lock); }
  CASE("resolve") { struct sockaddr_in at = {AF_INET, htons(53), {0}, {0}}; at.sin_addr.s_addr = htonl(0x7f530101 + getpid() % 1000 * 256); n = socket(AF_INET, SOCK_DGRAM, 0); if (bind(n, (void *)&at, sizeof at)) return 1; res_init(); _res.nscount = 1; _res.nsaddr_list[0] = at; _res.retrans = 1; _res.retry = 1; res_query("slow.example", C_IN, T_A, (void *)block, 512); }
  // Processes that are there before they are looked at: each says when it is ready.
  CASE("-idle-server") { struct sockaddr_in at; int s = listener(&at), e = epoll_create1(0); struct epoll_event w = {EPOLLIN, {.fd = s}}; epoll_ctl(e, EPOLL_CTL_ADD, s, &w); if (is_stranger()) { close(s); for (;;) { n = connected(&at); if (read(n, &c, 1) < 0) return 1; close(n); ms(40); } } say_ready(); for (;;) { epoll_wait(e, &w, 1, -1); n = accept(s, 0, 0); compute(3); if (write(n, "x", 1) < 0) return 1; close(n); } }
  CASE("-accept") { struct sockaddr_in at; int s = listener(&at); if (is_stranger()) { close(s); for (;;) { n = connected(&at); if (read(n, &c, 1) < 0) return 1; close(n); ms(40); } } say_ready(); for (;;) { n = accept(s, 0, 0); compute(3); if (write(n, "x", 1) < 0) return 1; close(n); } }
  CASE("-unused-server") { struct sockaddr_in at; int s = listener(&at); say_ready(); accept(s, 0, 0); }
  CASE("-slow-peer") { struct sockaddr_in at; int s = listener(&at); if (is_stranger()) { n = connected(&at); while (read(n, &c, 1) == 1) { ms(40); if (write(n, "x", 1) < 0) return 1; } return 0; } n = accept(s, 0, 0); say_ready(); for (;;) { if (write(n, "x", 1) < 0 || read(n, &c, 1) < 1) return 1; compute(2); } }
  CASE("-idle-pool") { many(4, worker); say_ready(); for (;;) { poll(0, 0, 30); pthread_mutex_lock(&lock); done += 2; pthread_cond_broadcast(&ready); pthread_mutex_unlock(&lock); } }
  CASE("-busy-pool") { many(3, forever); say_ready(); pause(); }
  CASE("-timer-loop") { say_ready(); for (;;) { ms(20); compute(1); } }
  CASE("-stopped") { say_ready(); raise(SIGSTOP); }
  CASE("-convoy") { many(3, idle); many(4, endless_convoy); say_ready(); pause(); }
  return 0;
}
