/* Calls getppid where functions of the C library call the program: sort and search,
   a walk over a tree, a function at exit, a thread's start. */
#define _GNU_SOURCE
#include <ftw.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <sys/stat.h>
static inline __attribute__((always_inline)) long call(void)
{
	long result;
	__asm__ volatile("syscall\n\tnop" : "=a"(result) : "a"(110) : "rcx", "r11", "memory");
	return result;
}
static volatile long sink;
static int order(const void *a, const void *b)
{
	static int calls;
	if (calls++ == 2)
		sink += call();
	return *(const int *)a - *(const int *)b;
}
static int entry(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
	sink += call() + kind + place->level;
	return 1;
}
static void node(const void *item, VISIT which, int depth)
{
	if (which == leaf)
		sink += call() + depth + *(const int *)item;
}
static void *thread(void *nothing)
{
	sink += call();
	return nothing;
}
static void at_exit(void)
{
	sink += call();
}
int main(void)
{
	int numbers[] = {5, 1, 4, 2, 3, 9, 8, 7};
	void *tree = 0;
	pthread_t other;
	qsort(numbers, 8, sizeof *numbers, order);
	nftw("/proc/self/fd", entry, 8, FTW_PHYS);
	tsearch(numbers, &tree, order);
	twalk(tree, node);
	pthread_create(&other, 0, thread, 0);
	pthread_join(other, 0);
	atexit(at_exit);
	return 0;
}
