#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace shop {
template <typename T> struct Basket {
	std::vector<T> items;
	template <typename F> auto fold(F f) const
	{
		decltype(f(items[0])) sum{};
		for (const auto &item : items)
			sum += f(item);
		return sum;
	}
	__attribute__((noinline)) T best() const
	{
		if (items.empty())
			throw std::out_of_range("empty");
		return *std::max_element(items.begin(), items.end());
	}
};

namespace {
struct Local {
	static int count(const std::map<std::string, int> &m)
	{
		int n = 0;
		for (const auto &[key, value] : m)
			n += value + static_cast<int>(key.size());
		return n;
	}
};
} // namespace
} // namespace shop

int main(int argc, char **)
{
	shop::Basket<int> basket;
	std::map<std::string, int> names;
	for (int i = 0; i < 200; i++) {
		basket.items.push_back(i * argc % 17);
		names[std::to_string(i % 23)] += i;
	}
	std::sort(basket.items.begin(), basket.items.end(), [](int a, int b) { return a > b; });
	double sum = basket.fold([](int i) { return i * 1.5; });
	try {
		shop::Basket<long> none;
		sum += none.best();
	} catch (const std::out_of_range &e) {
		sum += e.what()[0];
	}
	struct Inner {
		static int twice(int x) { return x * 2; }
	};
	std::printf("%f %d %d\n", sum, shop::Local::count(names), Inner::twice(basket.best()));
}
