/* Makes a function at run time that calls back, and calls it. With an argument it
   keeps no frame pointer. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) void back(void) { syscall(SYS_getppid); __asm__ volatile(""); }
/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char framed[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* push %rbp; xor %ebp,%ebp; call *%rdi; pop %rbp; ret */
static const unsigned char bare[] = {0x55, 0x31, 0xed, 0xff, 0xd7, 0x5d, 0xc3};
__attribute__((noinline)) void enter(void (*made)(void (*)(void))) { made(back); __asm__ volatile(""); }
int main(int count, char **arguments) {
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (count > 1) memcpy(page, bare, sizeof bare);
    else memcpy(page, framed, sizeof framed);
    enter(page);
    return 0;
}
