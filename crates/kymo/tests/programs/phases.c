/* A phase of one thread, then one of two threads, each some time on the CPU. */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

static void burn(double seconds) {
	struct timespec begin, now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while ((now.tv_sec - begin.tv_sec) + (now.tv_nsec - begin.tv_nsec) * 1e-9 < seconds);
}

__attribute__((noinline)) static void *work(void *unused) {
	burn(0.3);
	return unused;
}

int main(void) {
	pthread_t threads[2];
	burn(0.3);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], 0, work, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], 0);
	return 0;
}
