/* Spends its time in short calls through the procedure linkage table. */
#include <stdlib.h>
extern int step(int);
__attribute__((noinline)) int loop(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += step(i); return sum; }
int main(int count, char **arguments) { return loop(atoi(arguments[1])) == 1; }
