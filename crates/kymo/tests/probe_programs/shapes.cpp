// Namespaces, templates, overloads, references and a base class, for probes by path.
#include <string>
#include <vector>
#include <cstdio>
namespace shapes {
struct Base { virtual ~Base() {} int id = 7; };
struct Point : Base { int x, y; Point(int a, int b) : x(a), y(b) {} __attribute__((noinline)) int area(int scale) const; };
int Point::area(int scale) const { int r = x * y * scale; return r + id; }
template <typename T> __attribute__((noinline)) T twice(T v) { T w = v + v; return w; }
__attribute__((noinline)) static int over(int a) { return a + 1; }
__attribute__((noinline)) static int over(double a) { return (int)a + 2; }
namespace deep { int counter = 3; __attribute__((noinline)) int bump(Point &p, bool up) { counter += up; return counter + p.x; } }
}
int main(int argc, char **argv) {
  shapes::Point p(argc + 2, 4);
  int s = p.area(argc);
  s += shapes::twice(argc) + (int)shapes::twice((double)argc);
  s += shapes::over(argc) + shapes::over(2.5 * argc);
  s += shapes::deep::bump(p, argc > 0);
  printf("%d\n", s);
  return 0;
}
