/* Loads each library that it is given, calls it, and takes it away again. */
#include <dlfcn.h>
int main(int count, char **paths)
{
	long sum = 0;
	for (int i = 1; i < count; i++) {
		void *library = dlopen(paths[i], RTLD_NOW);
		long (*enter)(long) = (long (*)(long))dlsym(library, "enter");
		sum += enter(i);
		dlclose(library);
	}
	return sum == 0;
}
