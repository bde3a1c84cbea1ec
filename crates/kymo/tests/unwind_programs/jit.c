/* Makes a function at run time that calls back, and calls it. It keeps a frame
   pointer, unless the first argument says `bare`: then it does not, and also
   pushes something. With a second argument, a directory, it writes a jitdump file
   there that names it and says how to leave it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noinline)) void back(void) { syscall(SYS_getppid); __asm__ volatile(""); }
/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char framed[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* xchg %ax,%ax; push %rbp; xor %ebp,%ebp; call *%rdi; pop %rbp; ret */
static const unsigned char bare[] = {0x66, 0x90, 0x55, 0x31, 0xed, 0xff, 0xd7, 0x5d, 0xc3};
/* .eh_frame as if it lay behind those 9 bytes, at the next multiple of 8: one CIE and one FDE. */
static const unsigned char eh_frame[] = {
    /* length 20, CIE, version 1, "zR", code 1, data -8, RA 16, FDEs are pc-relative sdata4 */
    20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b,
    /* CFA = rsp + 8, RA at CFA - 8 */
    0x0c, 7, 8, 0x90, 1, 0, 0,
    /* length 24, CIE 28 bytes before; the code begins 16 + 32 bytes before, has 9 */
    24, 0, 0, 0, 28, 0, 0, 0, 0xd0, 0xff, 0xff, 0xff, 9, 0, 0, 0, 0,
    /* from byte 3 on CFA = rsp + 16, rbp at CFA - 16; from byte 8 on CFA = rsp + 8 */
    0x43, 0x0e, 16, 0x86, 2, 0x45, 0x0e, 8, 0, 0, 0};
static void dump(const char *directory, void *code) {
    char path[4096], name[] = "made";
    snprintf(path, sizeof path, "%s/jit-%d.dump", directory, getpid());
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
    uint32_t head[10] = {0x4A695444, 1, 40, 62, 0, getpid()};
    write(fd, head, sizeof head);
    uint32_t info[10] = {4, 40 + sizeof eh_frame};
    ((uint64_t *)info)[2] = sizeof eh_frame;
    write(fd, info, sizeof info), write(fd, eh_frame, sizeof eh_frame);
    uint32_t load[14] = {0, 56 + sizeof name + sizeof bare, 0, 0, getpid(), gettid()};
    uint64_t *words = (uint64_t *)load;
    words[3] = words[4] = (uint64_t)code, words[5] = sizeof bare, words[6] = 1;
    write(fd, load, sizeof load), write(fd, name, sizeof name), write(fd, bare, sizeof bare);
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
}
__attribute__((noinline)) void enter(void (*made)(void (*)(void))) { made(back); __asm__ volatile(""); }
int main(int count, char **arguments) {
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (count > 1) memcpy(page, bare, sizeof bare);
    else memcpy(page, framed, sizeof framed);
    if (count > 2) dump(arguments[2], page);
    enter(page);
    return 0;
}
