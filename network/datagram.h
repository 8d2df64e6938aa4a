/* SPDX-License-Identifier: MIT */
/*
 * What network/client sends and network/network recognises among whatever else reaches its device.
 */
#ifndef KLAT_NETWORK_DATAGRAM_H
#define KLAT_NETWORK_DATAGRAM_H

#include <stdint.h>

#define DATAGRAM_MAGIC 0x6b6c6174u /* "klat" */
#define DATAGRAM_PORT 7717
#define DATAGRAM_LARGEST 1472 /* one Ethernet frame: 1500 less the IPv4 and UDP headers */

/*
 * The beginning of every datagram's data, in network byte order but for `start`, which does not
 * leave the machine.
 */
struct datagram {
	uint32_t magic;
	uint32_t stream; /* tells one sender's numbering from another's */
	uint32_t sequence;
	uint32_t reserved;
	uint64_t start; /* the sender's counter before send(); 0 from another machine */
};

#endif
