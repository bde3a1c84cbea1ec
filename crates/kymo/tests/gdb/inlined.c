/* Calls getppid by an instruction of its own below functions that are inlined:
   nested, in a loop, in a recursion, in a handler of a signal, in one that qsort of
   the C library calls, and at the end of a function that is left by a jump. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#define FAR __attribute__((noinline, noclone))
#define IN static inline __attribute__((always_inline))
static volatile long sink;
IN long call(void)
{
	long result;
	__asm__ volatile("syscall\n\tnop" : "=a"(result) : "a"(110) : "rcx", "r11", "memory");
	return result;
}
IN long here(long x)
{
	return x + call();
}
IN long between(long x)
{
	if (x > 3)
		sink += x;
	return here(x) * 3;
}
FAR long nested(long x)
{
	long sum = between(x);
	for (int i = 0; i < 3; i++)
		sum ^= sum << i;
	return sum;
}
FAR long recursive(long left, long *room)
{
	long own[8] = {left, *room};
	if (left == 0)
		return between(own[1]);
	return recursive(left - 1, &own[left % 8]) + own[1];
}
static int order(const void *a, const void *b)
{
	static int calls;
	if (++calls == 3)
		sink += here(calls);
	return *(const int *)a - *(const int *)b;
}
FAR long last(long x)
{
	sink += here(x);
	return sink;
}
FAR long jumps(long x)
{
	sink += x;
	return last(x + 1);
}
static void handler(int number, siginfo_t *info, void *context)
{
	sink += between(number);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; /* behind the ud2 */
}
IN void interrupted(void)
{
	__asm__ volatile("ud2");
}
FAR void signalled(void)
{
	interrupted();
	sink++;
}
int main(int count, char **arguments)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	int numbers[] = {5, 1, 4, 2, 3, 9, 8, 7};
	long room = count;
	sink += nested(count);
	sink += recursive(4, &room);
	qsort(numbers, 8, sizeof *numbers, order);
	sink += numbers[0] + jumps(count);
	sigaction(SIGILL, &action, 0);
	signalled();
	return (int)(here(sink) >> 62);
}
