/* SPDX-License-Identifier: MIT */
/*
 * The payload of a block: words of 64 bits that count up from a base. Each message has its own
 * base, so a word of another message or place differs. Writing and comparing run at the speed of
 * memory.
 */
#ifndef KLAT_TRANSPORT_PATTERN_H
#define KLAT_TRANSPORT_PATTERN_H

#include "transport.h"

/* 2^64 over the golden ratio, odd, as in Knuth's multiplicative hashing: spreads the numbers. */
static inline uint64_t pattern_base(uint64_t number, int side)
{
	return (number * 2 + side) * UINT64_C(0x9e3779b97f4a7c15);
}

/* `block` is aligned to a page, so that its payload is to a word. */
static inline void pattern_write(char *block, size_t bytes, uint64_t base)
{
	uint64_t *words = (uint64_t *)(block + HEADER_BYTES);
	size_t size = bytes - HEADER_BYTES, count = size / sizeof(*words);
	uint64_t last = base + count;

	for (size_t i = 0; i < count; i++)
		words[i] = base + i;
	memcpy(words + count, &last, size % sizeof(*words));
}

static inline bool pattern_differs(const char *block, size_t bytes, uint64_t base)
{
	const uint64_t *words = (const uint64_t *)(block + HEADER_BYTES);
	size_t size = bytes - HEADER_BYTES, count = size / sizeof(*words);
	uint64_t last = base + count, difference = 0;

	for (size_t i = 0; i < count; i++)
		difference |= words[i] ^ (base + i);
	return difference || memcmp(words + count, &last, size % sizeof(*words));
}

#endif
