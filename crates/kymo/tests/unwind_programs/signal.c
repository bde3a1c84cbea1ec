/* Takes a signal in the middle of a function, deep in a recursion; its handler
   makes one getppid call. With an argument the handler has a stack of its own. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
__attribute__((noinline)) static void in_handler(void) { syscall(SYS_getppid); __asm__ volatile(""); }
static void handler(int number, siginfo_t *info, void *context) {
    in_handler();
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; /* behind the ud2 */
}
__attribute__((noinline)) void deep(int left) {
    volatile char room[200];
    room[0] = left;
    if (left) deep(left - 1);
    else __asm__ volatile("ud2");
    room[1] = room[0];
}
int main(int count, char **arguments) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    if (count > 1) {
        stack_t own = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        sigaltstack(&own, 0);
        action.sa_flags |= SA_ONSTACK;
    }
    sigaction(SIGILL, &action, 0);
    deep(5);
    return 0;
}
