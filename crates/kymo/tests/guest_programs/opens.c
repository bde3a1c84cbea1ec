/* Opens a file of a known name as often as its argument says: three of four times with
   other flags than the fourth, and once one that is not there. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 4;
	for (int i = 0; i < n; i++) {
		int fd = open("/tmp/kymo-known-file", i % 4 == 3 ? O_RDONLY : O_RDWR | O_CREAT, 0600);
		if (fd >= 0)
			close(fd);
	}
	open("/tmp/kymo-missing-file", O_RDONLY);
	unlink("/tmp/kymo-known-file");
	return 0;
}
