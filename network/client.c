/* SPDX-License-Identifier: MIT */
/*
 * The sender for network --remote, on another machine: numbered UDP datagrams at a steady pace. It
 * measures nothing. Each datagram has an absolute time, so the cost of sending does not add up. A
 * datagram that is late by more than an interval shifts the later ones: datagrams sent to catch up
 * would reach the reader before it sleeps again.
 */
#include "base/clock.h"
#include "datagram.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EXIT_USAGE 2

struct arguments {
	struct in_addr to, source; /* INADDR_ANY when not given */
	int64_t port, count, interval_us, bytes;
};

struct result {
	int64_t sent, late, refused;
	int refusal; /* errno of the last one refused */
	double seconds;
};

static const char usage[] =
	"Usage: client --to ADDRESS [OPTION]...\n"
	"Sends UDP datagrams to klat's network --remote on another machine.\n"
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
	"This machine needs a route to the device's subnet through the machine that\n"
	"measures, and that machine has to forward (see network --help):\n"
	"  here, as root:    ip route add 10.168.77.0/24 via ROUTER\n"
	"  there, as root:   sysctl net.ipv4.ip_forward=1; network --remote\n"
	"  here:             client --to 10.168.77.2\n"
	"\n"
	"Exit status: 0 sent (network reports what arrived); 1 failed; 2 usage.\n";

static int64_t number(const char *name, int64_t minimum, int64_t maximum)
{
	char *end;
	int64_t value;

	errno = 0;
	value = strtoll(optarg, &end, 10);
	/* strtoll() skips white space and takes a plus sign. */
	if (!isdigit((unsigned char)optarg[optarg[0] == '-']) || *end)
		errx(EXIT_USAGE, "--%s takes a whole number, not '%s'", name, optarg);
	if (errno == ERANGE || value < minimum || value > maximum)
		errx(EXIT_USAGE, "--%s %s is out of range: %lld to %lld", name, optarg,
		     (long long)minimum, (long long)maximum);
	return value;
}

static struct in_addr address(const char *name)
{
	struct in_addr value;

	if (inet_pton(AF_INET, optarg, &value) != 1 || value.s_addr == htonl(INADDR_ANY))
		errx(EXIT_USAGE, "--%s takes an IPv4 address, not '%s'", name, optarg);
	return value;
}

static void parse(int argc, char **argv, struct arguments *arguments)
{
	static const struct option table[] = {
		{ "to", required_argument, NULL, 't' },
		{ "port", required_argument, NULL, 'p' },
		{ "count", required_argument, NULL, 'c' },
		{ "interval", required_argument, NULL, 'i' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "source", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int code;

	/* As err() says it. */
	argv[0] = program_invocation_short_name;
	while ((code = getopt_long(argc, argv, "+", table, NULL)) != -1)
		switch (code) {
		case 't':
			arguments->to = address("to");
			break;
		case 's':
			arguments->source = address("source");
			break;
		case 'p':
			arguments->port = number("port", 1, 65535);
			break;
		case 'c':
			arguments->count = number("count", 1, 1000000000);
			break;
		case 'i':
			arguments->interval_us = number("interval", 0, 10000000);
			break;
		case 'b':
			arguments->bytes =
				number("bytes", sizeof(struct datagram), DATAGRAM_LARGEST);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS);
		default:
			/* getopt_long() has described it. */
			exit(EXIT_USAGE);
		}
	if (optind < argc)
		errx(EXIT_USAGE, "unexpected argument '%s'; see --help", argv[optind]);
	if (arguments->to.s_addr == htonl(INADDR_ANY))
		errx(EXIT_USAGE, "--to is missing; see --help");
}

/* A connected socket reports a missing route at once, and ICMP errors for its datagrams. */
static int open_socket(const struct arguments *arguments)
{
	struct sockaddr_in source = { .sin_family = AF_INET, .sin_addr = arguments->source };
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(arguments->port),
				  .sin_addr = arguments->to };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		err(EXIT_FAILURE, "cannot make a UDP socket");
	if (bind(fd, (struct sockaddr *)&source, sizeof(source)))
		err(EXIT_FAILURE, "cannot send from that --source");
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(EXIT_FAILURE, "no route to that address through the machine that measures (see "
				  "--help)");
	return fd;
}

static void sleep_until(int64_t ns)
{
	const struct timespec time = klat_from_ns(ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
		;
}

/* An ICMP error for an earlier datagram. send() returns it and does not send this datagram. */
static bool is_refusal(int error)
{
	return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
	       error == EHOSTDOWN || error == EACCES || error == EPROTO || error == ENOPROTOOPT;
}

static int send_one(int fd, const char *data, size_t size, struct result *result)
{
	for (int attempt = 0; send(fd, data, size, 0) < 0; attempt++) {
		if (!is_refusal(errno) || attempt)
			return -errno;
		result->refused++;
		result->refusal = errno;
	}
	result->sent++;
	return 0;
}

static int send_all(int fd, const struct arguments *arguments, struct result *result)
{
	const int64_t interval = arguments->interval_us * 1000, begin = klat_now_ns();
	struct datagram datagram = { .magic = htonl(DATAGRAM_MAGIC) };
	char data[DATAGRAM_LARGEST] = { 0 };
	int64_t next = begin;
	int err = 0;

	if (getrandom(&datagram.stream, sizeof(datagram.stream), 0) != sizeof(datagram.stream))
		datagram.stream = begin ^ getpid();
	for (int64_t i = 0; i < arguments->count && !err; i++) {
		if (interval)
			sleep_until(next);
		next += interval;
		if (interval && klat_now_ns() > next) {
			result->late++;
			next = klat_now_ns() + interval;
		}
		datagram.sequence = htonl(i);
		memcpy(data, &datagram, sizeof(datagram));
		err = send_one(fd, data, arguments->bytes, result);
	}
	result->seconds = (klat_now_ns() - begin) / 1e9;
	return err;
}

int main(int argc, char **argv)
{
	struct arguments arguments = {
		.port = DATAGRAM_PORT, .count = 2000, .interval_us = 1000, .bytes = 64
	};
	struct result result = { 0 };
	char to[INET_ADDRSTRLEN];
	int error;

	parse(argc, argv, &arguments);
	error = -send_all(open_socket(&arguments), &arguments, &result);
	inet_ntop(AF_INET, &arguments.to, to, sizeof(to));
	printf("sent %lld datagrams of %lld bytes to %s:%lld in %.3f s, %lld of them late\n",
	       (long long)result.sent, (long long)arguments.bytes, to, (long long)arguments.port,
	       result.seconds, (long long)result.late);
	if (fflush(stdout))
		err(EXIT_FAILURE, "cannot write the result");
	if (result.refused)
		warnx("%lld datagrams were refused, the last one: %s; is network --remote running "
		      "with this address and --port, and is its machine forwarding?",
		      (long long)result.refused, strerror(result.refusal));
	if (error)
		errx(EXIT_FAILURE, "cannot send: %s", strerror(error));
	return EXIT_SUCCESS;
}
