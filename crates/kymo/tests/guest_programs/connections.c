/* What bpftrace's tools with kprobes look at, done once: TCP connections over the loopback, one of
   them with a request that is sent again since nobody answers, and a message over a UNIX socket. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
static struct sockaddr_in address(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return at;
}
static int listener(int port, int backlog)
{
	struct sockaddr_in at = address(port);
	int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, backlog))
		exit(1);
	return listener;
}
static void connection(void)
{
	char bytes[5000];
	memset(bytes, 'x', sizeof bytes);
	struct sockaddr_in at = address(7003);
	int server = listener(7003, 3), client = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(client, (struct sockaddr *)&at, sizeof at))
		exit(2);
	int served = accept(server, 0, 0);
	if (write(client, bytes, sizeof bytes) != sizeof bytes)
		exit(3);
	close(client);
	while (read(served, bytes, sizeof bytes) > 0)
		;
	close(served);
}
/* The second connection finds the queue full. */
static void sent_again(void)
{
	struct sockaddr_in at = address(7004);
	listener(7004, 0);
	int first = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(first, (struct sockaddr *)&at, sizeof at))
		exit(4);
	int second = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	connect(second, (struct sockaddr *)&at, sizeof at);
	struct tcp_info info = { 0 };
	for (int waits = 0; waits < 1000 && !info.tcpi_total_retrans; waits++) {
		socklen_t size = sizeof info;
		getsockopt(second, IPPROTO_TCP, TCP_INFO, &info, &size);
		usleep(20000);
	}
}
static void message(void)
{
	int pair[2];
	char bytes[20];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || write(pair[0], "eightby", 8) != 8 ||
	    read(pair[1], bytes, sizeof bytes) != 8)
		exit(5);
}
int main(void)
{
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &loopback);
	connection();
	sent_again();
	message();
	return 0;
}
