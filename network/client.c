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

enum {
	EXIT_SENT = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2
};

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

static bool parse_number(const char *name, const char *text, int64_t minimum, int64_t maximum,
			 int64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	if (end == text || *end || text[0] == ' ' || text[0] == '+' || (errno && errno != ERANGE)) {
		fprintf(stderr, "client: --%s takes a whole number, not '%s'\n", name, text);
		return false;
	}
	if (errno == ERANGE || *value < minimum || *value > maximum) {
		fprintf(stderr, "client: --%s %s is out of range: %lld to %lld\n", name, text,
			(long long)minimum, (long long)maximum);
		return false;
	}
	return true;
}

static bool parse_address(const char *name, const char *text, struct in_addr *address)
{
	if (inet_pton(AF_INET, text, address) == 1 && address->s_addr != htonl(INADDR_ANY))
		return true;
	fprintf(stderr, "client: --%s takes an IPv4 address, not '%s'\n", name, text);
	return false;
}

/* The value of the option with this code. */
static bool parse_value(int code, struct arguments *arguments)
{
	switch (code) {
	case 't':
		return parse_address("to", optarg, &arguments->to);
	case 's':
		return parse_address("source", optarg, &arguments->source);
	case 'p':
		return parse_number("port", optarg, 1, 65535, &arguments->port);
	case 'c':
		return parse_number("count", optarg, 1, 1000000000, &arguments->count);
	case 'i':
		return parse_number("interval", optarg, 0, 10000000, &arguments->interval_us);
	default:
		return parse_number("bytes", optarg, sizeof(struct datagram), DATAGRAM_LARGEST,
				    &arguments->bytes);
	}
}

/* Returns the exit status, or -1 to go on. */
static int parse(int argc, char **argv, struct arguments *arguments)
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

	*arguments = (struct arguments){
		.port = DATAGRAM_PORT, .count = 2000, .interval_us = 1000, .bytes = 64
	};
	opterr = 0;
	for (;;) {
		int at = optind, code = getopt_long(argc, argv, "+:", table, NULL);

		switch (code) {
		case -1:
			if (optind < argc) {
				fprintf(stderr, "client: unexpected argument '%s'; see --help\n",
					argv[optind]);
				return EXIT_USAGE;
			}
			if (arguments->to.s_addr == htonl(INADDR_ANY)) {
				fputs("client: --to is missing; see --help\n", stderr);
				return EXIT_USAGE;
			}
			return -1;
		case 'h':
			fputs(usage, stdout);
			return fflush(stdout) || ferror(stdout) ? EXIT_FAILED : EXIT_SENT;
		case ':':
			fprintf(stderr, "client: %s needs a value; see --help\n", argv[at]);
			return EXIT_USAGE;
		case '?':
			fprintf(stderr,
				"client: unknown, ambiguous or misused option '%s'; see --help\n",
				argv[at]);
			return EXIT_USAGE;
		default:
			if (!parse_value(code, arguments))
				return EXIT_USAGE;
		}
	}
}

/* A connected socket reports a missing route at once, and ICMP errors for its datagrams. */
static int open_socket(const struct arguments *arguments)
{
	struct sockaddr_in source = { .sin_family = AF_INET, .sin_addr = arguments->source };
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(arguments->port),
				  .sin_addr = arguments->to };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		fprintf(stderr, "client: cannot make a UDP socket: %s\n", strerror(errno));
		return -1;
	}
	if (arguments->source.s_addr != htonl(INADDR_ANY) &&
	    bind(fd, (struct sockaddr *)&source, sizeof(source))) {
		fprintf(stderr, "client: cannot send from that --source: %s\n", strerror(errno));
		goto fail;
	}
	if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		fprintf(stderr, "client: no route to that address: %s%s\n", strerror(errno),
			errno == ENETUNREACH
				? "; add a route through the machine that measures, see --help"
				: "");
		goto fail;
	}
	return fd;
fail:
	close(fd);
	return -1;
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
	struct result result = { 0 };
	struct arguments arguments;
	char to[INET_ADDRSTRLEN];
	int fd, err, status = parse(argc, argv, &arguments);

	if (status >= 0)
		return status;
	fd = open_socket(&arguments);
	if (fd < 0)
		return EXIT_FAILED;
	err = send_all(fd, &arguments, &result);
	close(fd);
	inet_ntop(AF_INET, &arguments.to, to, sizeof(to));
	printf("sent %lld datagrams of %lld bytes to %s:%lld in %.3f s, %lld of them late\n",
	       (long long)result.sent, (long long)arguments.bytes, to, (long long)arguments.port,
	       result.seconds, (long long)result.late);
	if (result.refused)
		fprintf(stderr,
			"client: %lld datagrams were refused, the last one: %s; is network "
			"--remote "
			"running with this address and --port, and is its machine forwarding?\n",
			(long long)result.refused, strerror(result.refusal));
	if (err)
		fprintf(stderr, "client: cannot send: %s\n", strerror(-err));
	if (fflush(stdout)) {
		fprintf(stderr, "client: cannot write the result: %s\n", strerror(errno));
		return EXIT_FAILED;
	}
	return err ? EXIT_FAILED : EXIT_SENT;
}
