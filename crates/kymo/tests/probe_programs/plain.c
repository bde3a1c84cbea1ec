/* Structures, bit fields, inlined copies, a constant-propagated clone: what probes are described in. */
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
struct inner { int x; union { short s; char c; }; unsigned bits:5; unsigned more:7; };
struct outer { const char *name; struct inner in; struct inner *ptr; int arr[4]; struct outer *next; char text[16]; };
static int counter;
int global = 7;
static inline __attribute__((always_inline)) int inl(int v, struct outer *o)
{
	int w = v * 3;
	if (w > o->in.x)
		w += o->arr[2];
	return w;
}
__attribute__((noinline)) int work(struct outer *o, int n, const char *msg)
{
	int sum = 0;
	for (int i = 0; i < n; i++) {
		sum += inl(i, o);
		counter++;
	}
	if (msg)
		sum += strlen(msg);
	return sum;
}
static __attribute__((noinline)) long other(long a, unsigned char b, short c)
{
	long r = a + b;
	r += inl(c, &(struct outer){ .arr = {1,2,3,4} });
	return r;
}
int main(int argc, char **argv)
{
	struct inner in = { .x = 5, .s = 6, .bits = 3, .more = 9 };
	struct outer o = { .name = "outer", .in = { 1, { 2 }, 3, 4 }, .ptr = &in, .arr = { 10, 20, 30, 40 }, .text = "hello" };
	o.next = &o;
	int r = work(&o, 3, "message");
	r += other(argc, 2, 3);
	printf("%d %d %d\n", r, counter, global);
	return 0;
}
