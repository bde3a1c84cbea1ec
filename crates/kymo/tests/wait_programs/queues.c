// Threads that wait 30 ms for what another one has: each is named by what it waits for.
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char path[4096];
static int semaphores, messages;
static mqd_t queue;
static pthread_mutex_t inherits;
static pthread_barrier_t ready;

static void pause_ms(int ms) {
    struct timespec t = {0, ms * 1000000L};
    nanosleep(&t, 0);
}

static void lock_range(int fd, int command, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(fd, command, &lock)) exit(3);
}

static void *waits(void *name) {
    struct { long type; char text[8]; } message;
    char text[64];
    prctl(PR_SET_NAME, name);
    int fd = open(path, O_RDWR);
    pthread_barrier_wait(&ready);
    if (!strcmp(name, "q-flock")) flock(fd, LOCK_EX);
    if (!strcmp(name, "q-ofd")) lock_range(fd, F_OFD_SETLKW, F_WRLCK);
    if (!strcmp(name, "q-sem")) semop(semaphores, &(struct sembuf){0, -1, 0}, 1);
    if (!strcmp(name, "q-msg")) msgrcv(messages, &message, sizeof message.text, 0, 0);
    if (!strcmp(name, "q-mqueue")) mq_receive(queue, text, sizeof text, 0);
    if (!strcmp(name, "q-inherits")) pthread_mutex_lock(&inherits);
    // Other waiters want the same lock.
    close(fd);
    return 0;
}

static void child(int is_vfork, int own) {
    prctl(PR_SET_NAME, is_vfork ? "q-vfork" : "q-fcntl");
    int fd = open(path, O_RDWR);
    if (is_vfork) {
        if (vfork() == 0) {
            pause_ms(30);
            _exit(0);
        }
    } else {
        if (write(own, "x", 1) != 1) exit(3);
        lock_range(fd, F_SETLKW, F_WRLCK);
    }
    _exit(0);
}

int main(int count, char **arguments) {
    static char *names[] = {"q-flock", "q-ofd", "q-sem", "q-msg", "q-mqueue", "q-inherits"};
    enum { WAITERS = 6 };
    pthread_t threads[WAITERS];
    char own[64], byte;
    int ends[2];
    snprintf(path, sizeof path, "%s/locked", arguments[1]);
    int held = open(path, O_RDWR | O_CREAT, 0600);
    int posix = open(path, O_RDWR);
    flock(held, LOCK_EX);
    lock_range(held, F_OFD_SETLK, F_WRLCK);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    messages = msgget(IPC_PRIVATE, 0600);
    snprintf(own, sizeof own, "/kymo-waits-%d", getpid());
    struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = 64};
    queue = mq_open(own, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
    if (queue == (mqd_t)-1 || semaphores < 0 || messages < 0) return 77;
    mq_unlink(own);
    pthread_mutexattr_t how;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_setprotocol(&how, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&inherits, &how);
    pthread_mutex_lock(&inherits);
    if (pipe(ends)) return 3;
    pid_t vforks = fork();
    if (!vforks) child(1, 0);
    pid_t locks = fork();
    if (!locks) child(0, ends[1]);
    if (read(ends[0], &byte, 1) != 1) return 3;
    pthread_barrier_init(&ready, 0, WAITERS + 1);
    for (int n = 0; n < WAITERS; n++) pthread_create(&threads[n], 0, waits, names[n]);
    pthread_barrier_wait(&ready);
    pause_ms(30);
    struct { long type; char text[8]; } message = {1, "x"};
    flock(held, LOCK_UN);
    lock_range(held, F_OFD_SETLK, F_UNLCK);
    semop(semaphores, &(struct sembuf){0, 1, 0}, 1);
    msgsnd(messages, &message, 1, 0);
    mq_send(queue, "x", 1, 0);
    pthread_mutex_unlock(&inherits);
    for (int n = 0; n < WAITERS; n++) pthread_join(threads[n], 0);
    close(held);
    waitpid(vforks, 0, 0);
    waitpid(locks, 0, 0);
    semctl(semaphores, 0, IPC_RMID);
    msgctl(messages, IPC_RMID, 0);
    return posix < 0;
}
