/* Two functions within a third, which holds nearly all of the time. */
volatile unsigned long sink;
static inline __attribute__((always_inline)) void inner(int n) {
    for (int i = 0; i < n; i++) sink += i * i;
}
static inline __attribute__((always_inline)) void between(int n) { inner(n); sink ^= 1; }
__attribute__((noinline)) int outer(int n) { between(n); return n; }
int main(void) {
    int s = 0;
    for (int i = 0; i < 2500; i++) s += outer(50000);
    return s == 0;
}
