/* Sends COUNT UDP datagrams of SIZE bytes to a port of its own over the loopback: each begins with its
   number, from 0, as 4 bytes of the machine's order, and goes on with the low byte of number + place. */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
int main(int argc, char **argv)
{
	static unsigned char bytes[65536];
	uint32_t count = atoi(argv[1]), size = atoi(argv[2]);
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t length = sizeof at;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ioctl(to, SIOCSIFFLAGS, &loopback);
	if (bind(to, (struct sockaddr *)&at, sizeof at) || getsockname(to, (struct sockaddr *)&at, &length))
		return 1;
	for (uint32_t number = 0; number < count; number++) {
		for (uint32_t place = 4; place < size; place++)
			bytes[place] = number + place;
		memcpy(bytes, &number, sizeof number);
		if (sendto(from, bytes, size, 0, (struct sockaddr *)&at, sizeof at) != size)
			return 2;
	}
	return 0;
}
