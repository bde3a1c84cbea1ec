// Calls getppid by an instruction of its own where C++ inlines much: templates,
// lambdas, std::sort and std::function, virtual functions, constructors,
// destructors while an exception passes through, and handlers.
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>
#define FAR __attribute__((noinline, noclone))
#define IN inline __attribute__((always_inline))
static volatile long sink;
IN long call()
{
	long result;
	asm volatile("syscall\n\tnop" : "=a"(result) : "a"(110) : "rcx", "r11", "memory");
	return result;
}
namespace shapes {
struct Shape {
	virtual ~Shape() = default;
	virtual long area() const = 0;
};
template <typename T> struct Box : Shape {
	T side;
	IN explicit Box(T s) : side(s) { sink += call(); }
	FAR long area() const override { return twice([this] { return call() + long(side); }); }
	template <typename F> IN long twice(F f) const { return f() * 2; }
};
} // namespace shapes
template <int N> struct Guard {
	long value;
	IN ~Guard() { sink += call() + value; }
};
template <int N> FAR long nested(long x)
{
	Guard<N> guard{x};
	if constexpr (N == 0)
		throw std::runtime_error(std::to_string(x));
	else
		return nested<N - 1>(x + 1) + guard.value;
}
FAR long caught()
{
	try {
		return nested<2>(1);
	} catch (const std::exception &e) {
		return call() + e.what()[0];
	}
}
FAR long sorted()
{
	std::vector<long> v(40);
	std::iota(v.begin(), v.end(), 0);
	std::reverse(v.begin(), v.end());
	int calls = 0;
	std::sort(v.begin(), v.end(), [&](long a, long b) {
		if (++calls == 30)
			sink += call();
		return a < b;
	});
	return v[0];
}
FAR long through(const std::function<long(long)> &f)
{
	return f(3) + 1;
}
int main(int count, char **)
{
	std::unique_ptr<shapes::Shape> shape = std::make_unique<shapes::Box<short>>(count);
	sink += shape->area();
	sink += caught();
	sink += sorted();
	sink += through([&](long x) { return call() * x + count; });
	return 0;
}
