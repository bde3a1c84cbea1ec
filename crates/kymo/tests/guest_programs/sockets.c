/* Connects to itself over TCP on the loopback, sends five thousand bytes there and eight over a
   UNIX socket, looks for a file that is not there, and becomes user 7. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
static int tcp(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(7001) };
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	char bytes[5000];
	memset(bytes, 'x', sizeof bytes);
	int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	ioctl(listener, SIOCSIFFLAGS, &loopback);
	if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 3))
		return 1;
	int client = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(client, (struct sockaddr *)&at, sizeof at))
		return 2;
	int served = accept(listener, 0, 0);
	if (write(client, bytes, sizeof bytes) != sizeof bytes)
		return 3;
	close(client);
	while (read(served, bytes, sizeof bytes) > 0)
		;
	close(served);
	return 0;
}
int main(void)
{
	int pair[2];
	char bytes[20];
	if (tcp() || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	if (write(pair[0], "eightby", 8) != 8 || read(pair[1], bytes, sizeof bytes) != 8)
		return 2;
	open("/tmp/kymo-not-there", O_RDONLY);
	return setresuid(7, 7, 7) || setuid(7);
}
