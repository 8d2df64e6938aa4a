/* SPDX-License-Identifier: MIT */
/* The options, the device and the evidence. threads.c has the event. */
#include "network.h"

#include "datagram.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEFAULT_ADDRESS "10.168.77.1/24"

struct options options = {
	.low_priority = 19,
	.port = DATAGRAM_PORT,
	.wait_for = 30,
	.address = DEFAULT_ADDRESS,
	.device = "klat0",
};

static const struct klat_option option_table[] = {
	{ "low-priority", "priority of the thread that is preempted",
	  KLAT_INTEGER(low_priority, 1, 98) },
	{ "remote",
	  "open the device among this machine's own interfaces and wait for network/client on "
	  "another machine",
	  KLAT_FLAG(remote) },
	{ "address",
	  "the device's address and subnet; packets to the other addresses of the subnet reach the "
	  "device",
	  KLAT_TEXT(address), .unrecorded = true, .argument = "A.B.C.D/N" },
	{ "device", "name of the tun device", KLAT_TEXT(device), .unrecorded = true,
	  .argument = "NAME" },
	{ "port", "UDP port of the datagrams", KLAT_INTEGER(port, 1, 65535), .unrecorded = true },
	{ "wait-for",
	  "with --remote, give up after this long without a packet that can be measured",
	  KLAT_INTEGER(wait_for, 1, 86400), .unrecorded = true, .argument = "SECONDS" },
};

static const struct klat_metric metrics[] = {
	[INTERRUPT_TO_READ] = { "interrupt_to_read",
				"low-priority thread's last stamp to packet read, on one CPU",
				.path_length = true,
				KLAT_WINDOWS("announce spin_until_read", "read_packets"),
				.taken_by = "high" },
	[TIMER_TO_READ] = { "timer_to_read",
			    "low-priority thread's last stamp to packet read, with the client's "
			    "timer, wakeup and send()",
			    .path_length = true,
			    KLAT_WINDOWS("announce spin_until_read", "read_packets"),
			    .taken_by = "high" },
	[SEND_TO_READ] = { "send_to_read", "before send() to packet read, client's CPU to reader's",
			   .path_length = true, KLAT_WINDOWS("send_until_read", "read_packets"),
			   .taken_by = "high" },
};

static const struct klat_published published[] = {
	{ "interrupt_to_read", NULL, 4245.08, "cycles",
	  "tun device, two threads on one CPU, mean of 500 runs, sd 165.1; Linux, 2013" },
};

/* L comes first: the library's planted faults spoil the first worker, and H would starve. */
enum { LOW, HIGH, CLIENT };

static const struct klat_worker workers[] = {
	[LOW] = { "low", "low thread", spin_for_packets, .rank = KLAT_LOW, .spins = KLAT_ALWAYS },
	[HIGH] = { "high", "high thread", read_packets, .sleeps = KLAT_MOSTLY },
	[CLIENT] = { "client", .body = send_packets, .place = 1 },
};

static int configure(struct klat_run *run)
{
	struct state *state = run->state;

	/* '%' would ask the kernel to choose a number. */
	if (!options.device[0] || strlen(options.device) >= IFNAMSIZ ||
	    strpbrk(options.device, "/%: \t\n") || options.device[0] == '.')
		return klat_usage(run, "--device takes a name of at most %d characters, not '%s'",
				  IFNAMSIZ - 1, options.device);
	state->device.name = options.device;
	if (!klat_net_parse(options.address, &state->device))
		return klat_usage(run,
				  "--address takes the IPv4 address of a host and a prefix of 8 to "
				  "30, for example " DEFAULT_ADDRESS ", not '%s'",
				  options.address);
	if (options.remote && run->soak)
		return klat_usage(run, "--soak: network cannot soak with --remote");
	run->low_priority = options.low_priority;
	klat_use_metric(run, metric_of_spinner(run), 1);
	if (options.remote) {
		klat_use_table(run, workers, CLIENT);
		/* The spinner's error says more than the supervisor's, so it has to come first. */
		run->patience = options.wait_for + 10;
		return 0;
	}
	/* An offset between two counters can change in hours. */
	if (run->one_cpu || !run->soak)
		klat_use_metric(run, SEND_TO_READ, 1);
	if (!run->soak)
		klat_bound_offset(run, SEND_TO_READ);
	return 0;
}

/* The first address of the subnet that is not the device's own. The kernel routes packets for this
 * address to the device. */
static struct in_addr peer_of(const struct klat_net_device *device)
{
	const uint32_t first = ntohl(device->address.s_addr & device->netmask.s_addr) + 1,
		       own = ntohl(device->address.s_addr);

	return (struct in_addr){ htonl(first + (first == own)) };
}

static int open_private(struct klat_run *run)
{
	struct state *state = run->state;
	const struct sockaddr_in peer = { .sin_family = AF_INET,
					  .sin_port = htons(options.port),
					  .sin_addr = peer_of(&state->device) };
	int err = klat_enter_namespace(run, CLONE_NEWNET, "a network namespace");

	if (err)
		return err;
	state->tun_fd = klat_net_open_tun(run, &state->device, true);
	if (state->tun_fd < 0)
		return state->tun_fd;
	state->socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (state->socket_fd < 0)
		return klat_error(run, errno, "cannot make a UDP socket: %m");
	if (connect(state->socket_fd, (const struct sockaddr *)&peer, sizeof(peer)))
		return klat_error(run, errno, "no route to the device %s: %m", options.device);
	return 0;
}

/* On a terminal, say what to type on the other machine. */
static int open_remote(struct klat_run *run)
{
	struct state *state = run->state;
	int err = klat_net_check_free(run, &state->device);

	if (err)
		return err;
	state->tun_fd = klat_net_open_tun(run, &state->device, false);
	if (state->tun_fd < 0)
		return state->tun_fd;
	if (isatty(STDERR_FILENO))
		fprintf(stderr,
			"network: waiting on %s for up to %lld s; on the other machine: "
			"network/client --to %s --port %lld\n",
			options.device, (long long)options.wait_for,
			inet_ntoa(peer_of(&state->device)), (long long)options.port);
	return 0;
}

static int setup(struct klat_run *run)
{
	struct state *state = run->state;
	struct klat_worker *reader = &run->workers[HIGH], *sender = &run->workers[CLIENT];
	int err;

	state->stream = getpid();
	err = options.remote ? open_remote(run) : klat_net_in_child(run, open_private);
	if (err)
		return err;
	reader->kernel_threads = options.remote;
	if (options.remote)
		return 0;
	sender->timers = run->one_cpu;
	sender->most_sleeps = run->one_cpu ? KLAT_ANY_SLEEPS : 0;
	/* SCHED_OTHER has no priorities; the evidence shows the effect. */
	if (run->one_cpu && reader->priority) {
		sender->priority = run->low_priority + 1;
		if (sender->priority >= reader->priority)
			return klat_error(run, EINVAL,
					  "on one CPU the client needs a priority between %d and "
					  "%d: use another --low-priority",
					  run->low_priority, reader->priority);
	}
	return 0;
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;

	klat_require(
		run,
		{ "preempted", state->counts.preempted, KLAT_MOSTLY, run->iterations,
		  .reason = "the low-priority thread was seen spinning and preempted for {got} of "
			    "{wanted} packets" },
		{ NULL, klat_worker_find(run, "low", 0)->involuntary, KLAT_AT_LEAST,
		  klat_observed(run),
		  .reason = "the low-priority thread was preempted by {got} of {wanted} packets" },
		{ "lost", state->counts.lost, options.remote ? KLAT_COUNTED : KLAT_NEVER,
		  .reason = "datagrams were lost and sent again", .disturbs = true },
		{ "strays", .got = state->counts.strays },
		{ "unspun", .got = state->counts.unspun, .unless = !options.remote },
		{ "overtaken", state->counts.overtaken, KLAT_MOSTLY, run->iterations,
		  "the reader preempted the client within send() for {got} of {wanted} packets",
		  .unless = options.remote || !run->one_cpu });
}

const struct klat_benchmark klat_benchmark = {
	.name = "network",
	.summary = "wakeup of a reader by a packet through a tun device",
	.description =
		"A thread of high priority blocks in read() on a tun device. A thread of low "
		"priority spins on the same CPU and reads the counter in each turn. A client on "
		"another CPU sends UDP datagrams to the device. interrupt_to_read is the time from "
		"the low thread's last stamp to the high thread's return from read(): interrupt, "
		"wakeup and preemption. send_to_read begins at the client's stamp before send(). "
		"The device is in a private network namespace, so the interfaces, routes and "
		"addresses of the machine do not change. The packet passes the device in the "
		"client's context, so a reschedule interrupt wakes the reader. No network card is "
		"involved.\n\n"
		"On one CPU (--cpus 1,1) a timer wakes the client, whose priority is just above "
		"the low thread's. The client preempts the low thread and sends; the reader "
		"preempts the client before send() returns. The time from the low thread's last "
		"stamp to the high thread's return is then timer_to_read: the timer's interrupt, "
		"the client's wakeup, its path through the network stack, and the preemption by "
		"the reader. Do not compare send_to_read with that of a run on two CPUs. As "
		"further evidence, the reader's stamp must lie between the client's stamps before "
		"and after send() (\"overtaken\").\n\n"
		"With --remote the device is one of this machine's own interfaces. The datagrams "
		"come from network/client on another machine, through the network card and IP "
		"forwarding. The examples show the commands. ROUTER is this machine's address on "
		"the network that both machines share. The kernel drops all packets while "
		"net.ipv4.ip_forward is 0. With net.ipv4.conf.*.rp_filter=1 it drops packets that "
		"arrive on another interface than the route to their sender uses; with 2 it "
		"accepts them. A firewall's forward chain can also drop them. The device "
		"disappears when the program ends, even if it crashes.\n\n"
		"With --remote the low thread spins in bursts of 40 ms with rests of 6 ms. Packets "
		"that arrive during a rest are counted (\"unspun\") but not measured. The client "
		"therefore has to send more packets than iterations and warm-up together.\n\n"
		"Evidence for each packet: the low thread was spinning, and the kernel preempted "
		"it. On two CPUs it did so exactly once.",
	.examples = "network\tin a private network namespace, on two CPUs\n"
		    "network --cpus 1,0\treader and spinning thread on CPU 1, client on CPU 0\n"
		    "network --cpus 1,1\tall on one CPU; the client's priority is between the "
		    "other two\n"
		    "sysctl net.ipv4.ip_forward=1\there, as root; note the old value first\n"
		    "ip route add 10.168.77.0/24 via ROUTER\ton the other machine, as root\n"
		    "network --remote\there, as root: waits up to 30 s for the first packet\n"
		    "network/client --to 10.168.77.2\ton the other machine, meanwhile\n"
		    "ip route del 10.168.77.0/24\ton the other machine, afterwards",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.soaks = true,
	.counts_at = offsetof(struct state, counts),
	.counts_size = sizeof(struct counts),
	.policy = SCHED_RR,
	.high_priority = 98,
	.faults = { "yield" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
