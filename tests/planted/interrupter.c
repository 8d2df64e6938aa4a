/* SPDX-License-Identifier: MIT */
/*
 * Interrupts a CPU repeatedly, for the tests of `klat explain`. On SIGTERM it prints the begin and
 * the end of each interruption, in ticks of the counter.
 *
 *     interrupter task CPU US        hold the CPU with a real-time task, US at a time
 *     interrupter packets CPU FROM   send packets from the CPU FROM that CPU's softirq receives
 */
#include "klat.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	MOST = 100000,
	PACKETS = 25,
	/* These make a packet far more expensive to receive than to send, so that the softirq has
	 * no pause between two packets of a burst. */
	TAPS = 8,
	FILTER_STEPS = 4000
};

static uint64_t begins[MOST], ends[MOST];
static volatile sig_atomic_t ended;

static void on_term(int signal)
{
	(void)signal;
	ended = 1;
}

static _Noreturn void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
}

static void hold(int64_t us)
{
	int64_t until = klat_now_ns() + us * 1000;

	while (klat_now_ns() < until)
		;
}

static void write_file(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		fail(path);
	close(file);
}

/* A private network whose loopback device hands its packets to `cpu`. */
static void make_network(int cpu)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	char mask[32];
	int fd;

	if (unshare(CLONE_NEWNET | CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("sysfs", "/sys", "sysfs", 0, NULL))
		fail("a private network");
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
		fail("lo");
	close(fd);
	snprintf(mask, sizeof(mask), "%x", 1u << cpu);
	write_file("/sys/class/net/lo/queues/rx-0/rps_cpus", mask);
}

static struct sock_filter steps[FILTER_STEPS + 1];

static int make_socket(int family, int type, int protocol)
{
	const struct sock_fprog filter = { KLAT_ARRAY_SIZE(steps), steps };
	int fd = socket(family, type, protocol);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)))
		fail("a socket");
	return fd;
}

/* A socket that sends to itself, and the taps that read its packets, too, and drop them. */
static int make_sockets(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET,
				   .sin_port = htons(9),
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd;

	for (int i = 0; i < FILTER_STEPS; i++)
		steps[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0);
	steps[FILTER_STEPS] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	for (int i = 0; i < TAPS; i++)
		make_socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
	steps[FILTER_STEPS].k = 100;
	fd = make_socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(fd, (struct sockaddr *)&own, sizeof(own)) ||
	    connect(fd, (struct sockaddr *)&own, sizeof(own)))
		fail("a socket");
	return fd;
}

static void send_packets(int fd)
{
	char byte = 0;

	for (int i = 0; i < PACKETS; i++)
		if (send(fd, &byte, 1, 0) != 1)
			fail("send");
	for (int i = 0; i < PACKETS; i++)
		if (recv(fd, &byte, 1, 0) != 1)
			fail("recv");
}

int main(int argc, char **argv)
{
	const bool packets = argc == 4 && !strcmp(argv[1], "packets");
	const struct sched_param priority = { .sched_priority = 90 };
	const struct sigaction action = { .sa_handler = on_term, .sa_flags = SA_RESTART };
	int cpu, third, fd = -1, count = 0;

	if (argc != 4 || (!packets && strcmp(argv[1], "task")))
		return 2;
	cpu = atoi(argv[2]);
	third = atoi(argv[3]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGTERM, &action, NULL);
	if (packets) {
		make_network(cpu);
		fd = make_sockets();
	}
	pin(packets ? third : cpu);
	if (!packets && sched_setscheduler(0, SCHED_FIFO, &priority))
		fail("sched_setscheduler");
	for (; !ended && count < MOST; count++) {
		klat_nap(10000000);
		begins[count] = klat_ticks();
		if (packets)
			send_packets(fd);
		else
			hold(third);
		ends[count] = klat_ticks();
	}
	for (int i = 0; i < count; i++)
		printf("%llu %llu\n", (unsigned long long)begins[i], (unsigned long long)ends[i]);
	return 0;
}
