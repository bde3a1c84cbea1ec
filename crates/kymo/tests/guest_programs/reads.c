/* Reads a file of ten bytes three at a time, as often as its argument says, and asks
   each time with a length of its own for what is not there any more. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) long turn(int number, const char *path)
{
	char buffer[100];
	long sum = 0;
	int fd = open(path, O_RDONLY);
	for (int i = 0; i < 4; i++)
		sum += read(fd, buffer, 3);
	sum += read(fd, buffer, 40 + number);
	close(fd);
	return sum;
}
int main(int argc, char **argv)
{
	const char *path = "/tmp/kymo-ten-bytes";
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (write(fd, "0123456789", 10) != 10)
		return 1;
	close(fd);
	long sum = 0;
	for (int n = argc > 1 ? atoi(argv[1]) : 1; n > 0; n--)
		sum += turn(n, path);
	unlink(path);
	return sum == 0;
}
