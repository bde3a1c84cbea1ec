/* Functions that call each other, in one thread or (THREADS) in two. */
#include <pthread.h>
#include <stdio.h>
#ifndef ROUNDS
#define ROUNDS 1500
#endif
volatile unsigned long sink;
static inline __attribute__((always_inline)) void inner(int n) {
    for (int i = 0; i < n; i++) sink += i * i;
}
__attribute__((noinline)) void leaf(int n) { inner(n); }
__attribute__((noinline)) void mid(int n) { leaf(n); for (int i = 0; i < n / 2; i++) sink ^= i; }
__attribute__((noinline)) void top_a(int n) { mid(n); mid(n / 2); }
__attribute__((noinline)) void top_b(int n) { mid(n / 3); leaf(n); }
static void *work(void *arg) {
    char b[4096];
    for (int i = 0; i < ROUNDS; i++) {
        top_a(40000);
        top_b(30000);
        FILE *f = fopen("/proc/self/stat", "r");
        if (f) { sink += fread(b, 1, sizeof b, f); fclose(f); }
    }
    return arg;
}
int main(void) {
#ifdef THREADS
    pthread_t t;
    pthread_create(&t, 0, work, 0);
#endif
    work(0);
#ifdef THREADS
    pthread_join(t, 0);
#endif
    return 0;
}
