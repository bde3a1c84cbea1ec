// Threads that run a little and sleep, until they are killed: many_threads N.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile unsigned long sum;

static void *work(void *a) {
  for (;;) {
    for (long i = 0; i < 20000; i++) sum += i;
    usleep(100000);
  }
  return a;
}

int main(int argc, char **v) {
  pthread_t thread;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  for (int n = argc > 1 ? atoi(v[1]) : 1; n; n--)
    if (pthread_create(&thread, &small, work, 0)) return 1;
  puts("ready");
  fflush(stdout);
  pause();
}
