/* SPDX-License-Identifier: MIT */
/* The datagrams of network/client and network, recognised among other packets on the device. */
#ifndef KLAT_NETWORK_DATAGRAM_H
#define KLAT_NETWORK_DATAGRAM_H

#include <stdint.h>

#define DATAGRAM_MAGIC 0x6b6c6174u /* "klat" */
#define DATAGRAM_PORT 7717
#define DATAGRAM_LARGEST 1472 /* one Ethernet frame: 1500 less the IPv4 and UDP headers */

/* The start of every datagram, in network byte order except for `start`. */
struct datagram {
	uint32_t magic;
	uint32_t stream; /* identifies the numbering of a sender */
	uint32_t sequence;
	uint32_t reserved;
	uint64_t start; /* the sender's counter before send(); 0 from another machine */
};

#endif
