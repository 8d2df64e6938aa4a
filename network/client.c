/* SPDX-License-Identifier: MIT */
/*
 * The sender for network --remote, on another machine: numbered UDP datagrams at a steady pace. It
 * measures nothing. Each datagram has an absolute time, so the cost of sending does not add up. A
 * datagram that is late by more than an interval shifts the later ones: datagrams sent to catch up
 * would reach the reader before it sleeps again.
 */
#include "klat.h"

#include "datagram.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXIT_USAGE 2

/* INADDR_ANY when not given. */
static struct in_addr to, source;
static int64_t port = DATAGRAM_PORT, count = 2000, interval_us = 1000, bytes = 64;

/* What has happened so far. */
static int64_t sent, late, refused;
static int refusal; /* errno of the last refused datagram */

static const char usage[] =
	"Usage: client --to ADDRESS [OPTION]...\n"
	"Sends UDP datagrams to klat's network --remote on another machine. There,\n"
	"network --help shows the route and the forwarding that this needs.\n"
	"\n"
	"  --to ADDRESS      any other address in the subnet of the tun device,\n"
	"                    10.168.77.2 if network runs without --address\n"
	"  --port N          UDP port (1 to 65535; default 7717)\n"
	"  --count N         datagrams (1 to 1000000000; default 2000). About one in\n"
	"                    seven comes while the spinner rests and is not measured,\n"
	"                    so send more than the iterations and the warm-up\n"
	"  --interval US     microseconds between two (0 to 10000000; default 1000)\n"
	"  --bytes N         data in each (24 to 1472; default 64)\n"
	"  --source ADDRESS  send from this address of this machine\n"
	"  --help            print this and stop\n"
	"\n"
	"Exit status: 0 sent (network reports what arrived); 1 failed; 2 usage.\n";

static const struct {
	const char *name;
	struct in_addr *address;
	int64_t *number, minimum, maximum;
} options[] = {
	{ "to", .address = &to },
	{ "source", .address = &source },
	{ "port", .number = &port, 1, 65535 },
	{ "count", .number = &count, 1, 1000000000 },
	{ "interval", .number = &interval_us, 0, 10000000 },
	{ "bytes", .number = &bytes, sizeof(struct datagram), DATAGRAM_LARGEST },
	{ .name = "help" },
};

static void set_option(int index)
{
	const char *name = options[index].name;
	const int64_t minimum = options[index].minimum, maximum = options[index].maximum;

	if (options[index].address) {
		if (inet_pton(AF_INET, optarg, options[index].address) != 1 ||
		    options[index].address->s_addr == htonl(INADDR_ANY))
			errx(EXIT_USAGE, "--%s takes an IPv4 address, not '%s'", name, optarg);
	} else if (options[index].number) {
		if (!klat_parse_number(optarg, minimum, maximum, options[index].number))
			errx(EXIT_USAGE, KLAT_NOT_A_NUMBER, name, (long long)minimum,
			     (long long)maximum, optarg);
	} else {
		fputs(usage, stdout);
		exit(fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS);
	}
}

static void parse(int argc, char **argv)
{
	struct option table[KLAT_ARRAY_SIZE(options) + 1] = { 0 };
	int index;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(options); i++) {
		table[i].name = options[i].name;
		table[i].has_arg = options[i].address || options[i].number;
	}
	/* As err() says it. */
	argv[0] = program_invocation_short_name;
	for (int code; (code = getopt_long(argc, argv, "+", table, &index)) != -1;) {
		/* getopt_long() has described it. */
		if (code)
			exit(EXIT_USAGE);
		set_option(index);
	}
	if (optind < argc)
		errx(EXIT_USAGE, "unexpected argument '%s'; see --help", argv[optind]);
	if (to.s_addr == htonl(INADDR_ANY))
		errx(EXIT_USAGE, "--to is missing; see --help");
}

/* A connected socket reports a missing route at once, and ICMP errors for its datagrams. */
static int open_socket(void)
{
	const struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr = source }, other = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = to
	};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		err(EXIT_FAILURE, "cannot make a UDP socket");
	if (bind(fd, (const struct sockaddr *)&own, sizeof(own)))
		err(EXIT_FAILURE, "cannot send from that --source");
	if (connect(fd, (const struct sockaddr *)&other, sizeof(other)))
		err(EXIT_FAILURE,
		    "no route to that address through the machine that measures (see --help)");
	return fd;
}

/* After an ICMP error for an earlier datagram, send() returns that error and sends nothing. */
static int send_one(int fd, const char *data)
{
	if (send(fd, data, bytes, 0) < 0) {
		refused++;
		refusal = errno;
		if (send(fd, data, bytes, 0) < 0)
			return errno;
	}
	sent++;
	return 0;
}

static int send_all(int fd)
{
	const int64_t interval = interval_us * 1000;
	int64_t next = klat_now_ns();
	struct datagram datagram = { .magic = htonl(DATAGRAM_MAGIC), .stream = next ^ getpid() };
	char data[DATAGRAM_LARGEST] = { 0 };
	int error = 0;

	for (int64_t i = 0; i < count && !error; i++) {
		const struct timespec time = klat_from_ns(next);

		if (interval)
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
		next += interval;
		if (interval && klat_now_ns() > next) {
			late++;
			next = klat_now_ns() + interval;
		}
		datagram.sequence = htonl(i);
		memcpy(data, &datagram, sizeof(datagram));
		error = send_one(fd, data);
	}
	return error;
}

int main(int argc, char **argv)
{
	int64_t begin;
	int fd, error;

	parse(argc, argv);
	fd = open_socket();
	begin = klat_now_ns();
	error = send_all(fd);
	printf("sent %lld datagrams of %lld bytes to %s:%lld in %.3f s, %lld of them late\n",
	       (long long)sent, (long long)bytes, inet_ntoa(to), (long long)port,
	       (klat_now_ns() - begin) / 1e9, (long long)late);
	if (fflush(stdout))
		err(EXIT_FAILURE, "cannot write the result");
	if (refused)
		warnx("%lld datagrams were refused, the last one: %s; is network --remote running "
		      "with this address and --port, and is its machine forwarding?",
		      (long long)refused, strerror(refusal));
	if (error)
		errx(EXIT_FAILURE, "cannot send: %s", strerror(error));
	return EXIT_SUCCESS;
}
