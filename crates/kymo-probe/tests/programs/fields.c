/* Structures, bit fields, an inlined function: what descriptions of probes name. */
struct in { int x; unsigned bits : 5; union { short s; char c; }; };
struct out { const char *name; struct in in; struct in *ptr; int arr[4]; struct out *next; };
static inline __attribute__((always_inline)) int inl(int v, struct out *o) { return v * 3 + o->arr[2]; }
__attribute__((noinline)) int work(struct out *o, int n, const char *msg) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += inl(i, o) + o->in.bits;
    return sum + (msg ? *msg : 0) + o->next->ptr->s;
}
int main(int argc, char **argv) { struct out o = { argv[0] }; o.next = &o; return work(&o, argc, argv[0]); }
