/* Sleeps in a function of its own, on a line of its own, without the C library. */
#include <sys/syscall.h>
#include <time.h>

__attribute__((noinline)) static long nap(void) {
    struct timespec time = {0, 200000000};
    long ret;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(SYS_nanosleep), "D"(&time), "S"(0) : "rcx", "r11", "memory");
    return ret;
}

int main(void) {
    return (int)nap();
}
