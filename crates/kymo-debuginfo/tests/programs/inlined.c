#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct list { struct list *next; int value; };

static inline __attribute__((always_inline)) int weigh(const struct list *l)
{
	int sum = 0;
	for (; l; l = l->next)
		sum += l->value * 3;
	return sum;
}

static inline __attribute__((always_inline)) int twice(const struct list *l)
{
	return weigh(l) + weigh(l->next);
}

__attribute__((noinline)) int both(const struct list *l, int deep)
{
	int other(int n) { return n + deep; }
	if (deep > 2 && __builtin_expect(!l->next, 0))
		abort();
	return twice(l) + other(weigh(l));
}

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

int main(int argc, char **argv)
{
	struct list a[64];
	int sorted[64];
	memset(a, 0, sizeof a);
	for (int i = 0; i < 63; i++) {
		a[i].next = &a[i + 1];
		a[i].value = sorted[i] = (i * 7919 + argc) % 64;
	}
	qsort(sorted, 63, sizeof *sorted, compare);
	int sum = 0;
	for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 1000); i++)
		sum += both(&a[i % 32], i);
	printf("%d %d\n", sum, sorted[3]);
	return 0;
}
