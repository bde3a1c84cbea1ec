// Calls getppid where C++ stacks are unusual: in a destructor while an exception
// passes through, in a handler, in a comparison inside of std::sort, in a function
// that realigns its stack, and in one with a stack of variable size.
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>
#define FAR __attribute__((noinline))
FAR void here() { syscall(SYS_getppid); asm volatile(""); }
template <typename T> struct Guard {
    T value;
    FAR ~Guard() { here(); asm volatile(""); }
};
template <typename T, int N> FAR T nested(T x) {
    Guard<T> guard{x};
    if constexpr (N == 0) throw std::runtime_error(std::to_string(x));
    else return nested<T, N - 1>(x + 1) + guard.value;
}
FAR int caught() {
    try { return nested<int, 3>(1); }
    catch (const std::exception &e) { here(); return e.what()[0]; }
}
FAR bool less(int a, int b) { static int calls; if (++calls == 20) here(); return a < b; }
FAR void sorted() {
    std::vector<int> v;
    for (int i = 0; i < 50; i++) v.push_back(i * 37 % 50);
    std::function<bool(int, int)> order = less;
    std::sort(v.begin(), v.end(), order);
}
FAR void aligned(int n) { alignas(64) volatile char room[128]; room[n] = n; here(); room[0] = room[n]; }
FAR void variable(int n) { volatile char room[n]; room[0] = n; aligned(n % 7); room[1] = room[0]; }
int main() { caught(); sorted(); variable(1000); return 0; }
