/* SPDX-License-Identifier: MIT */
/*
 * A thread of high priority (H) blocks in read() on a tun device; one of low priority (L) spins on
 * the same CPU, noting the counter each turn. Timed: L's last stamp to H's return from read(),
 * which is interrupt, wake-up and preemption on one counter; and the client's stamp before send()
 * to the same return. Not timed: H's way back to sleep, the client's wait for L. The traps: a
 * packet that comes while L rests, or while H is still busy with another, preempts nobody, so the
 * client waits for L's word that it spins, and L proves afterwards, packet by packet, that it was
 * preempted meanwhile. What else reaches the device (stray packets) is never a sample. A datagram
 * of this machine runs through the device in its sender's context: a reschedule interrupt wakes H,
 * not a network card's. On one CPU a timer wakes the client, of a priority between the two, which
 * preempts L and is itself preempted by H before its send() is over: that is then what is timed.
 */
#include "klat.h"

#include "datagram.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * Of a datagram that is not answered in this many ticks, about 100 ms, nothing more is to be
 * expected.
 */
#define LOST_TICKS (UINT64_C(1) << 28)
#define MAX_ATTEMPTS 8
/*
 * The client's pause once L spins, in ticks: no shorter than several turns of L, and random lest
 * the two fall into step.
 */
#define SETTLE_TICKS 4096
#define SETTLE_RANDOM_BITS 14
/* With --remote, turns of L between two looks at the clock: some 100 us. */
#define TURNS 4096
/* On one CPU, how long the client sleeps so that L spins meanwhile, and how often for one packet.
 */
#define NAP_NS 50000
#define NAP_RANDOM_BITS 14
#define MAX_NAPS 20000

enum {
	WAKEUP,
	SEND_TO_READ
};

struct options {
	bool remote;
	int64_t low_priority, port, wait_for;
	const char *address, *device;
};

struct state {
	int tun_fd, socket_fd;
	struct in_addr address, netmask, peer;

	/* Of L. The client's word to send is `announced`. */
	uint64_t last KLAT_ALIGNED;
	bool resting;
	int64_t preempted;
	uint32_t announced KLAT_ALIGNED; /* generation for which L spins */

	/* Of H. */
	uint32_t done KLAT_ALIGNED; /* generation whose packet is read */
	uint64_t end;               /* its stamp */
	bool spun;                  /* L had been spinning when it came */
	uint64_t seen;              /* L's last stamp when H last returned from read() */
	uint32_t stream, next;      /* whose numbering, and the number to follow */
	int64_t strays, unspun;

	int64_t overtaken;         /* packets that H had read before the client's send() was over */
	int64_t lost KLAT_ALIGNED; /* counted by the client; with --remote by H, from holes in the
				      numbering */
};

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "low-priority", "N", "priority of the thread that is preempted", KLAT_INTEGER,
	  AT(low_priority), 1, 98, NULL, false },
	{ "remote", NULL,
	  "open the device among this machine's own interfaces and wait for network/client on "
	  "another machine",
	  KLAT_FLAG, AT(remote), 0, 0, NULL, false },
	{ "address", "A.B.C.D/N",
	  "the device's address and subnet; packets to any other address of it reach the device "
	  "(default 10.168.77.1/24)",
	  KLAT_TEXT, AT(address), 0, 0, NULL, true },
	{ "device", "NAME", "name of the tun device (default klat0)", KLAT_TEXT, AT(device), 0, 0,
	  NULL, true },
	{ "port", "N", "UDP port of the datagrams", KLAT_INTEGER, AT(port), 1, 65535, NULL, true },
	{ "wait-for", "SECONDS",
	  "with --remote, give up when no packet could be measured for this long", KLAT_INTEGER,
	  AT(wait_for), 1, 86400, NULL, true },
};

static const struct options defaults = {
	.low_priority = 19,
	.port = DATAGRAM_PORT,
	.wait_for = 30,
	.address = "10.168.77.1/24",
	.device = "klat0",
};

static const struct klat_metric metrics[] = {
	[WAKEUP] = { "wakeup", "low-priority thread's last stamp to packet read, on one CPU",
		     true },
	[SEND_TO_READ] = { "send_to_read", "before send() to packet read, client's CPU to reader's",
			   true },
};

static const struct klat_published published[] = {
	{ "wakeup", NULL, 4245.08, "cycles",
	  "tun device, two threads on one CPU, mean of 500 runs, sd 165.1; Linux, 2013" },
};

/* Warm-up iterations are negative; generations begin at 1. */
static uint32_t generation_of(const struct klat_run *run, int64_t i)
{
	return i + run->warmup + 1;
}

/* Configuration */

/*
 * The peer is the first address of the subnet that is not the device's own: a packet to it is
 * routed to the device.
 */
static int parse_address(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	const char *slash = strchr(o->address, '/');
	char dotted[INET_ADDRSTRLEN], *end;
	uint32_t address, mask;
	long bits;

	if (!slash || slash - o->address >= (ptrdiff_t)sizeof(dotted))
		return klat_usage(run,
				  "--address is an IPv4 address and prefix such as %s, not '%s'",
				  defaults.address, o->address);
	memcpy(dotted, o->address, slash - o->address);
	dotted[slash - o->address] = 0;
	bits = strtol(slash + 1, &end, 10);
	if (inet_pton(AF_INET, dotted, &state->address) != 1 || slash[1] < '0' || slash[1] > '9' ||
	    *end)
		return klat_usage(run,
				  "--address is an IPv4 address and prefix such as %s, not '%s'",
				  defaults.address, o->address);
	if (bits < 8 || bits > 30)
		return klat_usage(run, "--address %s: the prefix is out of range: 8 to 30",
				  o->address);
	address = ntohl(state->address.s_addr);
	mask = ~UINT32_C(0) << (32 - bits);
	if (address >> 24 == 0 || address >> 24 == 127 || address >> 24 >= 224 ||
	    !(address & ~mask) || (address | mask) == ~UINT32_C(0))
		return klat_usage(run, "--address %s is not the address of a host in its subnet",
				  o->address);
	state->netmask.s_addr = htonl(mask);
	state->peer.s_addr =
		htonl((address & mask) + 1 == address ? address + 1 : (address & mask) + 1);
	return 0;
}

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;
	int err = parse_address(run);

	if (err)
		return err;
	/* '%' would ask the kernel to choose a number. */
	if (!o->device[0] || strlen(o->device) >= IFNAMSIZ || strpbrk(o->device, "/%: \t\n") ||
	    o->device[0] == '.')
		return klat_usage(run, "--device takes a name of at most %d characters, not '%s'",
				  IFNAMSIZ - 1, o->device);
	run->low_priority = o->low_priority;
	klat_use_metric(run, WAKEUP, 1);
	if (o->remote) {
		run->cpu_count = 1;
		/*
		 * The low-priority thread says what is wrong before the supervisor says only that
		 * nothing happens.
		 */
		run->patience = o->wait_for + 10;
		return 0;
	}
	run->cpu_count = 2;
	klat_use_metric(run, SEND_TO_READ, 1);
	klat_bound_offset(run, SEND_TO_READ);
	return 0;
}

/* The device */

static void set_inet(struct sockaddr *to, struct in_addr address, int port)
{
	struct sockaddr_in inet = { .sin_family = AF_INET,
				    .sin_port = htons(port),
				    .sin_addr = address };

	memcpy(to, &inet, sizeof(inet));
}

/* Neighbour discovery would be strays. Without IPv6 there is no such file, and nothing to do. */
static void disable_ipv6(const char *device)
{
	char path[64 + IFNAMSIZ];
	int fd;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/disable_ipv6", device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* Where it is refused, strays are counted. */
	if (write(fd, "1", 1) < 0)
		errno = 0;
	close(fd);
}

/* Address and netmask, which give the route as well, then up. */
static int bring_up(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	struct ifreq request = { 0 };

	disable_ipv6(o->device);
	strcpy(request.ifr_name, o->device);
	set_inet(&request.ifr_addr, state->address, 0);
	if (ioctl(state->socket_fd, SIOCSIFADDR, &request))
		return klat_error(run, errno, "cannot give %s the address %s: %s", o->device,
				  o->address, strerror(errno));
	set_inet(&request.ifr_netmask, state->netmask, 0);
	if (ioctl(state->socket_fd, SIOCSIFNETMASK, &request))
		return klat_error(run, errno, "cannot give %s the subnet %s: %s", o->device,
				  o->address, strerror(errno));
	if (ioctl(state->socket_fd, SIOCGIFFLAGS, &request))
		return klat_error(run, errno, "cannot read the flags of %s: %s", o->device,
				  strerror(errno));
	request.ifr_flags |= IFF_UP;
	if (ioctl(state->socket_fd, SIOCSIFFLAGS, &request))
		return klat_error(run, errno, "cannot bring %s up: %s", o->device, strerror(errno));
	return 0;
}

static int make_device(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	/*
	 * Exclusive: a device that is there already belongs to somebody else. It goes with its last
	 * descriptor.
	 */
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_TUN_EXCL };

	state->tun_fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	if (state->tun_fd < 0 && (errno == EACCES || errno == EPERM))
		return klat_skip(run, "/dev/net/tun: %s; run as root", strerror(errno));
	if (state->tun_fd < 0)
		return klat_skip(run,
				 "/dev/net/tun: %s; load the tun module (modprobe tun), or give "
				 "the container the device",
				 strerror(errno));
	strcpy(request.ifr_name, o->device);
	/*
	 * Unregistering a device waits for RCU, some 20 ms. A private one can be left to its
	 * namespace, which the kernel takes apart in the background once nothing holds it.
	 */
	if (!ioctl(state->tun_fd, TUNSETIFF, &request)) {
		if (!o->remote && ioctl(state->tun_fd, TUNSETPERSIST, 1))
			return klat_error(run, errno, "cannot leave %s to its namespace: %s",
					  o->device, strerror(errno));
		return 0;
	}
	if (errno == EPERM)
		return klat_skip(
			run, "may not make a tun device (%s): run as root, or with CAP_NET_ADMIN",
			strerror(errno));
	if (errno == EBUSY || errno == EEXIST)
		return klat_error(
			run, errno,
			"there is a network device %s already; choose another name with --device",
			o->device);
	return klat_error(run, errno, "cannot make the tun device %s: %s", o->device,
			  strerror(errno));
}

/* The device, and the client's socket, in the network namespace of the caller. */
static int open_device(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	struct sockaddr peer;
	int err = make_device(run);

	if (err)
		return err;
	state->socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (state->socket_fd < 0)
		return klat_error(run, errno, "cannot make a UDP socket: %s", strerror(errno));
	err = bring_up(run);
	if (err)
		return err;
	set_inet(&peer, state->peer, o->port);
	if (!o->remote && connect(state->socket_fd, &peer, sizeof(peer)))
		return klat_error(run, errno, "no route to the device %s: %s", o->device,
				  strerror(errno));
	return 0;
}

/*
 * Root needs no user namespace of its own; anyone else is root in one, where the system lets them.
 */
static int enter_private_network(struct klat_run *run)
{
	int err;

	if (!unshare(CLONE_NEWNET))
		return 0;
	err = errno;
	if (err == EPERM && !unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return 0;
	return klat_skip(
		run, "may not make a network namespace (%s): run as root, or allow user namespaces",
		strerror(err));
}

/*
 * Through a child that shares the file table: it enters the namespaces, and the descriptors stay
 * here. The measured process itself keeps its namespaces, for in a user namespace it would lose
 * what real-time priority and locked memory may rest on.
 */
static int open_private_device(struct klat_run *run)
{
	int status;
	pid_t pid = syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0ul);

	if (pid < 0)
		return klat_error(run, errno, "cannot start a process: %s", strerror(errno));
	if (!pid)
		_exit(enter_private_network(run) || open_device(run));
	if (waitpid(pid, &status, 0) < 0)
		return klat_error(run, errno, "cannot wait for a process: %s", strerror(errno));
	if (WIFSIGNALED(status))
		return klat_error(run, EIO,
				  "the process that makes the network was killed by signal %d",
				  WTERMSIG(status));
	return WEXITSTATUS(status) ? -EIO : 0; /* described by the child */
}

/*
 * An interface of this machine that has addresses of the device's subnet would lose packets to it.
 */
static int check_overlap(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	struct ifaddrs *interfaces;
	int err = 0;

	if (getifaddrs(&interfaces))
		return klat_error(run, errno, "cannot list the network interfaces: %s",
				  strerror(errno));
	for (const struct ifaddrs *at = interfaces; at && !err; at = at->ifa_next) {
		struct sockaddr_in address, netmask;
		uint32_t common;

		if (!at->ifa_addr || !at->ifa_netmask || at->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&address, at->ifa_addr, sizeof(address));
		memcpy(&netmask, at->ifa_netmask, sizeof(netmask));
		common = netmask.sin_addr.s_addr & state->netmask.s_addr;
		if ((address.sin_addr.s_addr & common) == (state->address.s_addr & common))
			err = klat_error(run, EADDRINUSE,
					 "%s overlaps with the addresses of %s; choose others with "
					 "--address",
					 o->address, at->ifa_name);
	}
	freeifaddrs(interfaces);
	return err;
}

/* A person who has to go to the other machine gets to know what to type there. */
static void announce_wait(const struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	char peer[INET_ADDRSTRLEN];

	if (!isatty(STDERR_FILENO))
		return;
	inet_ntop(AF_INET, &state->peer, peer, sizeof(peer));
	fprintf(stderr,
		"network: waiting on %s for up to %lld s; on the other machine: network/client "
		"--to %s --port %lld\n",
		o->device, (long long)o->wait_for, peer, (long long)o->port);
}

/* H */

/* The datagram in an IPv4 packet from the device, or false for a stray. */
static bool find_datagram(const struct options *o, const char *packet, size_t size,
			  struct datagram *datagram)
{
	struct iphdr ip;
	struct udphdr udp;
	size_t header;

	if (size < sizeof(ip))
		return false;
	memcpy(&ip, packet, sizeof(ip));
	header = ip.ihl * 4;
	if (ip.version != 4 || header < sizeof(ip) || ip.protocol != IPPROTO_UDP ||
	    (ntohs(ip.frag_off) & (IP_OFFMASK | IP_MF)) ||
	    size < header + sizeof(udp) + sizeof(*datagram))
		return false;
	memcpy(&udp, packet + header, sizeof(udp));
	memcpy(datagram, packet + header + sizeof(udp), sizeof(*datagram));
	return ntohs(udp.dest) == o->port && ntohl(datagram->magic) == DATAGRAM_MAGIC;
}

/* Holes in a sender's numbering are lost packets; one that comes late fills its hole. */
static void follow_numbering(struct state *state, const struct datagram *datagram)
{
	uint32_t sequence = ntohl(datagram->sequence);
	int32_t ahead = sequence - state->next;

	if (ntohl(datagram->stream) != state->stream) {
		state->stream = ntohl(datagram->stream);
		ahead = 0;
	}
	if (ahead >= 0)
		state->next = sequence + 1;
	state->lost += ahead >= 0 ? ahead : -1;
}

/* Whether the packet that H has just read is the one for this generation. */
static bool accept_packet(struct klat_run *run, uint32_t generation, const char *packet,
			  size_t size, bool spun, struct datagram *datagram)
{
	const struct options *o = run->options;
	struct state *state = run->state;

	if (!find_datagram(o, packet, size, datagram) ||
	    (!o->remote && (ntohl(datagram->stream) != state->stream ||
			    ntohl(datagram->sequence) != generation))) {
		__atomic_fetch_add(&state->strays, 1, __ATOMIC_RELAXED);
		return false;
	}
	if (!o->remote)
		return true;
	follow_numbering(state, datagram);
	__atomic_fetch_add(&state->unspun, !spun, __ATOMIC_RELAXED);
	return spun;
}

/*
 * Whether L has been spinning for this packet, and has had a turn since H last returned: H alone
 * runs here now.
 */
static bool low_spun(struct state *state, uint32_t generation, uint64_t last)
{
	bool turned = last != state->seen;

	state->seen = last;
	return turned && __atomic_load_n(&state->announced, __ATOMIC_ACQUIRE) == generation &&
	       !__atomic_load_n(&state->resting, __ATOMIC_RELAXED);
}

static int high(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *wakeup = klat_series(run, WAKEUP, 0),
		 *send_to_read = klat_series(run, SEND_TO_READ, 0);

	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		const uint32_t generation = generation_of(run, i);
		struct datagram datagram;
		uint64_t last, end;
		char packet[2048];
		ssize_t size;
		bool spun;

		klat_iteration(worker, i);
		do {
			size = read(state->tun_fd, packet, sizeof(packet));
			if (size < 0)
				return -errno;
			klat_inject(run, i);
			end = klat_stamp_end(worker);
			last = __atomic_load_n(&state->last, __ATOMIC_RELAXED);
			spun = low_spun(state, generation, last);
		} while (!accept_packet(run, generation, packet, size, spun, &datagram));
		wakeup[i] = end - last;
		if (send_to_read)
			send_to_read[i] = end - datagram.start;
		state->end = end;
		/* With no priorities, L may have stamped between H's stamp and H's look at it. */
		state->spun = spun && last < end;
		__atomic_store_n(&state->done, generation, __ATOMIC_RELEASE);
	}
	return 0;
}

/* L */

static int64_t involuntary_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

static bool forwards(void)
{
	int fd = open("/proc/sys/net/ipv4/ip_forward", O_RDONLY | O_CLOEXEC);
	char value = 0;
	bool known;

	if (fd < 0)
		return true;
	known = read(fd, &value, 1) == 1;
	close(fd);
	return !known || value != '0';
}

static int give_up(struct klat_worker *worker)
{
	const struct options *o = worker->run->options;
	const struct state *state = worker->state;

	return klat_error(worker->run, ETIMEDOUT,
			  "no packet could be measured for %lld s, after %lld of %lld "
			  "(%lld came while the spinner did not run, %lld were stray): %s",
			  (long long)o->wait_for,
			  (long long)(worker->iteration + worker->run->warmup),
			  (long long)klat_made(worker->run),
			  (long long)__atomic_load_n(&state->unspun, __ATOMIC_RELAXED),
			  (long long)__atomic_load_n(&state->strays, __ATOMIC_RELAXED),
			  forwards() ? "is network/client sending, and is its route set?"
				     : "net.ipv4.ip_forward is 0 here, see --help");
}

/* Packets that come during the rest find nobody to preempt; H sees that by `resting`. */
static void rest_while_waiting(struct klat_worker *worker)
{
	struct state *state = worker->state;

	__atomic_store_n(&state->resting, true, __ATOMIC_RELAXED);
	klat_rest(worker);
	__atomic_store_n(&state->last, klat_stamp_begin(), __ATOMIC_RELAXED);
	__atomic_store_n(&state->resting, false, __ATOMIC_RELAXED);
}

/*
 * Spin until H has read the packet. In the private network the client limits the wait; a remote one
 * cannot, and may take so long that L has to rest meanwhile.
 */
static int spin_until_read(struct klat_worker *worker, uint32_t generation, bool yields)
{
	const struct options *o = worker->run->options;
	const int64_t deadline =
		klat_clock_ns(CLOCK_MONOTONIC_COARSE) + o->wait_for * KLAT_NS_PER_S;
	struct state *state = worker->state;

	for (uint32_t turn = 1; __atomic_load_n(&state->done, __ATOMIC_ACQUIRE) != generation;
	     turn++) {
		__atomic_store_n(&state->last, klat_stamp_begin(), __ATOMIC_RELAXED);
		if (__builtin_expect(yields, 0))
			klat_nap(50000);
		if (!o->remote || turn % TURNS)
			continue;
		rest_while_waiting(worker);
		if (klat_clock_ns(CLOCK_MONOTONIC_COARSE) > deadline)
			return give_up(worker);
	}
	return 0;
}

static int low(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const bool yields = klat_planted(run, "yield");
	struct state *state = worker->state;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		const uint32_t generation = generation_of(run, i);
		int64_t switches;

		klat_iteration(worker, i);
		klat_rest(worker);
		switches = involuntary_switches();
		__atomic_store_n(&state->last, klat_stamp_begin(), __ATOMIC_RELAXED);
		__atomic_store_n(&state->announced, generation, __ATOMIC_RELEASE);
		err = spin_until_read(worker, generation, yields);
		klat_stamp_end(worker); /* for its proof of the CPU */
		switches = involuntary_switches() - switches;
		/* On one CPU the client preempts L, too; from afar a packet may be long in coming.
		 */
		if (klat_is_sample(run, i) && state->spun &&
		    (run->one_cpu ? switches > 0 : switches == 1))
			state->preempted++;
	}
	return err;
}

/* The client */

static bool is_read(const struct state *state, uint32_t generation)
{
	uint64_t begin = klat_ticks();

	while (__atomic_load_n(&state->done, __ATOMIC_ACQUIRE) != generation)
		if (klat_ticks() - begin > LOST_TICKS)
			return false;
	return true;
}

/*
 * A repeated datagram carries a stamp of its own, so that it does not matter which of them H reads.
 */
static int send_until_read(struct klat_worker *worker, struct datagram *datagram,
			   uint32_t generation)
{
	struct state *state = worker->state;

	datagram->sequence = htonl(generation);
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		datagram->start = klat_stamp_begin();
		if (send(state->socket_fd, datagram, sizeof(*datagram), 0) < 0 && errno != ENOBUFS)
			return -errno;
		if (is_read(state, generation))
			return 0;
		state->lost++;
	}
	return klat_error(worker->run, ETIMEDOUT, "%d datagrams in a row were not read",
			  MAX_ATTEMPTS);
}

/* The multiplier and increment of Numerical Recipes; the upper bits are the random ones. */
static uint32_t draw(uint32_t *random, int bits)
{
	*random = *random * 1664525 + 1013904223;
	return *random >> (32 - bits);
}

/* Sleep until L has been left to spin for this generation. */
static int nap_until_announced(struct state *state, uint32_t generation, uint32_t *random)
{
	for (int nap = 0; nap < MAX_NAPS; nap++) {
		bool announced =
			__atomic_load_n(&state->announced, __ATOMIC_ACQUIRE) == generation &&
			!__atomic_load_n(&state->resting, __ATOMIC_RELAXED);

		klat_nap(NAP_NS + draw(random, NAP_RANDOM_BITS));
		/* Before this sleep too, or L may have had no turn. */
		if (announced)
			return 0;
	}
	return -ETIMEDOUT;
}

/* The client on the CPU of the others, where it cannot spin for them. */
static int client_between(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct datagram datagram = { .magic = htonl(DATAGRAM_MAGIC),
				     .stream = htonl(state->stream) };
	uint32_t random = state->stream;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		const uint32_t generation = generation_of(run, i);
		uint64_t sent;

		klat_iteration(worker, i);
		err = nap_until_announced(state, generation, &random);
		if (err)
			break;
		datagram.sequence = htonl(generation);
		datagram.start = klat_stamp_begin();
		if (send(state->socket_fd, &datagram, sizeof(datagram), 0) < 0)
			return -errno;
		sent = klat_stamp_end(worker);
		if (klat_is_sample(run, i) &&
		    __atomic_load_n(&state->done, __ATOMIC_ACQUIRE) == generation &&
		    datagram.start < state->end && state->end < sent)
			state->overtaken++;
	}
	return err;
}

static int client(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct datagram datagram = { .magic = htonl(DATAGRAM_MAGIC),
				     .stream = htonl(state->stream) };
	uint32_t random = state->stream;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		const uint32_t generation = generation_of(run, i);

		klat_iteration(worker, i);
		klat_rest(worker);
		err = klat_spin_until(worker, &state->announced, generation);
		if (err)
			break;
		klat_spin(SETTLE_TICKS + draw(&random, SETTLE_RANDOM_BITS));
		err = send_until_read(worker, &datagram, generation);
		klat_stamp_end(worker); /* for its proof of the CPU */
	}
	return err;
}

/* The run */

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	struct klat_worker *reader, *sender;
	int err;

	state->tun_fd = state->socket_fd = -1;
	state->stream = getpid();
	err = o->remote ? check_overlap(run) : 0;
	if (!err)
		err = o->remote ? open_device(run) : open_private_device(run);
	if (err)
		return err;
	if (o->remote)
		announce_wait(run);
	/*
	 * L first, for the library's planted faults spoil the first worker: H without its priority
	 * would just starve.
	 */
	klat_worker_add(run, "low", 0, KLAT_LOW, low);
	reader = klat_worker_add(run, "high", 0, KLAT_HIGH, high);
	if (o->remote)
		return 0;
	sender = klat_worker_add(run, "client", 1, KLAT_HIGH,
				 run->one_cpu ? client_between : client);
	/* SCHED_OTHER has no priorities: what comes of it, the evidence tells. */
	if (run->one_cpu && reader->priority) {
		sender->priority = run->low_priority + 1;
		if (sender->priority >= reader->priority)
			return klat_error(run, EINVAL,
					  "on one CPU the client needs a priority between %d and "
					  "%d, and there is none: use another --low-priority",
					  run->low_priority, reader->priority);
	}
	return 0;
}

/* The device goes with its descriptor, the private network with its last one. */
static void teardown(struct klat_run *run)
{
	const struct state *state = run->state;

	if (state->socket_fd >= 0)
		close(state->socket_fd);
	if (state->tun_fd >= 0)
		close(state->tun_fd);
}

static int verify(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	int64_t involuntary = klat_worker_find(run, "low", 0)->involuntary;

	klat_count(run, "preempted", state->preempted);
	klat_count(run, "lost", state->lost);
	klat_count(run, "strays", state->strays);
	if (o->remote)
		klat_count(run, "unspun", state->unspun);
	klat_verify_slept(run, "high");
	if (!klat_is_enough(state->preempted, run->iterations))
		klat_invalid(run,
			     "the low-priority thread was seen spinning and preempted for %lld of "
			     "%lld packets",
			     (long long)state->preempted, (long long)run->iterations);
	if (involuntary < klat_observed(run))
		klat_invalid(
			run,
			"the low-priority thread was preempted %lld times in all by %lld packets",
			(long long)involuntary, (long long)klat_observed(run));
	if (!o->remote && run->one_cpu) {
		klat_count(run, "overtaken", state->overtaken);
		if (!klat_is_enough(state->overtaken, run->iterations))
			klat_invalid(run,
				     "the reader preempted the client within send() for %lld of "
				     "%lld packets",
				     (long long)state->overtaken, (long long)run->iterations);
	}
	if (!o->remote && state->lost)
		klat_disturbed(run, "datagrams were lost and sent again");
	return 0;
}

static const struct klat_benchmark network = {
	.name = "network",
	.summary = "tun transmit to wake-up of a reader that preempts",
	.description =
		"A thread of high priority blocks in read() on a tun device, one of low "
		"priority spins on the same CPU and notes the counter each turn, and a "
		"client on another CPU sends UDP datagrams to the device. The low "
		"thread's last stamp to the high thread's return from read() is "
		"interrupt, wake-up and preemption. All of it happens in a network "
		"namespace of its own, so that no interface, route or address of the "
		"machine is touched. The packet runs through the device in the client's "
		"context and the reader is woken by a reschedule interrupt, not by that "
		"of a network card.\n\n"
		"On one CPU (--cpus 1,1) a timer wakes the client, whose priority is just above "
		"the low thread's. It preempts that one and sends; the reader preempts it "
		"before send() returns. wakeup is still from the low thread's last stamp to "
		"the reader's, and holds the timer's interrupt, the client's wake-up and its "
		"way through the network stack besides; send_to_read is the part from the "
		"client's stamp before send() on. Neither is comparable with its like "
		"between two CPUs. Evidence besides is that the reader's stamp lies between "
		"the client's before and after send() (\"overtaken\").\n\n"
		"With --remote the device is among the machine's own interfaces and the "
		"datagrams come from network/client on another machine, through the "
		"network card and forwarding. The examples show the commands, with "
		"ROUTER for this machine's address on the network that both share. What "
		"the kernel would drop on the way: everything while net.ipv4.ip_forward "
		"is 0; with net.ipv4.conf.*.rp_filter=1, packets whose sender this "
		"machine reaches by another interface than they came by (2 is the "
		"lenient setting); what the forward chain of a firewall does not "
		"accept. The device is gone when the program ends, however it ends.\n\n"
		"With --remote the low thread spins in bursts of 40 ms with rests of 6 "
		"ms. Packets that come while it rests (\"unspun\") are counted and not "
		"measured, so that the client has to send some more than iterations and "
		"warm-up.\n\n"
		"Evidence is, packet by packet, that the low thread spun and that the kernel "
		"switched it out involuntarily, between two CPUs exactly once.",
	.examples = "network\tin a network of its own, two CPUs\n"
		    "network --cpus 3,2\treader and spinning thread on CPU 3, client on CPU 2\n"
		    "network --cpus 1,1\tall on one CPU, the packet sent by a thread between\n"
		    "sysctl net.ipv4.ip_forward=1\there, as root; note what it was before\n"
		    "ip route add 10.168.77.0/24 via ROUTER\ton the other machine, as root\n"
		    "network --remote\there, as root: waits up to 30 s for the first packet\n"
		    "network/client --to 10.168.77.2\ton the other machine, meanwhile\n"
		    "ip route del 10.168.77.0/24\ton the other machine, afterwards",
	KLAT_OPTIONS(options, defaults),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_RR,
	.high_priority = 98,
	.faults = { "yield" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
	.teardown = teardown,
};

int main(int argc, char **argv)
{
	return klat_main(&network, argc, argv);
}
