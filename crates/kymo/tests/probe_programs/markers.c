/* Markers with arguments of several types and places; says itself what they are.
   With -DSEMAPHORES the markers are passed over while nobody looks. */
#include <stdio.h>
#ifdef SEMAPHORES
#define _SDT_HAS_SEMAPHORES 1
#define SEMAPHORE(name) unsigned short app_##name##_semaphore __attribute__((section(".probes")))
SEMAPHORE(values);
SEMAPHORE(text);
SEMAPHORE(copy);
#define SEEN(name) ((int)*(volatile unsigned short *)&app_##name##_semaphore)
#else
#define SEEN(name) (-1)
#endif
#include <sys/sdt.h>

static inline __attribute__((always_inline)) void copy(long x)
{
	DTRACE_PROBE1(app, copy, x);
	printf("copy %ld\n", x);
}

__attribute__((noinline)) static void turn(int i, const char *text, long *far)
{
	signed char tiny = -i;
	unsigned short little = 60000 + i;
	int whole = -1000 * i;
	unsigned long large = 0x123456789abcdef0UL + i;
	DTRACE_PROBE6(app, values, tiny, little, whole, large, far[i], 42);
	printf("values %d %u %d %lu %ld 42\n", tiny, little, whole, large, far[i]);
	DTRACE_PROBE1(app, text, text);
	printf("text %s\n", text);
}

int main(void)
{
	long far[] = {7, 70, 700, 7000};
	const char *texts[] = {"zero", "one", "two", "three"};
	for (int i = 1; i < 4; i++)
		turn(i, texts[i], far);
	copy(5);
	copy(-6);
	printf("semaphore %d\n", SEEN(values));
	return 0;
}
