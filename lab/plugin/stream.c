/* SPDX-License-Identifier: MIT */
#include "stream.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first word of each record. */
enum {
	HEAD = 0x74616c6b, /* "klat" */
	BLOCK = 'B',
	PATH = 'P',
	STAMP = 'S',
	END = 'E'
};
#define FORMAT 2

/* A word of a path is one of these, or twice a block's number. In the second case the lowest bit is
 * set if the CPU executed only a part of the block. */
enum { IDLE = 0xfffffff0, SWITCH, REPEAT };

#define COMM_WORDS 4

static struct {
	FILE *file;
	bool failed;
	uint32_t blocks, paths;
	uint64_t stamps;
} out;

/* The current path. */
static struct {
	uint32_t *words;
	size_t count, room;
	uint32_t whole;    /* the last word if it is a whole block, or 0 */
	uint32_t repeated; /* the word of the block that a REPEAT at the end repeats, or 0 */
} path;

/* The written paths: a hash table. */
struct known_path {
	uint64_t hash[2];
	uint32_t number;
};
static struct {
	struct known_path *slots;
	size_t room;
} known;

/* The last stamp, and how often it came in succession. A spinning thread takes many equal stamps.
 */
static struct {
	struct arrival arrival;
	uint64_t times;
} last;

void *checked(void *memory)
{
	if (memory)
		return memory;
	fputs("klat: no memory for the trace\n", stderr);
	abort();
}

static void put(const uint32_t *words, size_t count)
{
	if (out.failed || fwrite(words, sizeof(*words), count, out.file) == count)
		return;
	out.failed = true;
	fprintf(stderr, "klat: the trace cannot be written: %s\n", strerror(errno));
}

#define PUT(...)                                                                                   \
	do {                                                                                       \
		const uint32_t words[] = { __VA_ARGS__ };                                          \
		put(words, sizeof(words) / sizeof(*words));                                        \
	} while (0)
#define HALVES(value) (uint32_t)(value), (uint32_t)((uint64_t)(value) >> 32)

int stream_open(const char *file)
{
	out.file = fopen(file, "wb");
	if (!out.file) {
		fprintf(stderr, "klat: %s: %s\n", file, strerror(errno));
		return -1;
	}
	PUT(HEAD, FORMAT);
	return 0;
}

static void add_word(uint32_t word)
{
	if (path.count == path.room) {
		path.room = path.room ? 2 * path.room : 4096;
		path.words = checked(realloc(path.words, path.room * sizeof(*path.words)));
	}
	path.words[path.count++] = word;
	path.whole = path.repeated = 0;
}

static uint32_t number_of(struct block *block)
{
	if (!block->number) {
		block->number = ++out.blocks;
		PUT(BLOCK, HALVES(block->address), block->length);
		put(block->sizes, size_words(block->length));
	}
	return block->number;
}

void path_begin(void)
{
	path.count = path.whole = path.repeated = 0;
}

void path_add_whole(struct block *block)
{
	uint32_t word = 2 * number_of(block);

	if (word == path.repeated) {
		path.words[path.count - 1]++;
	} else if (word == path.whole) {
		add_word(REPEAT);
		add_word(1);
		path.repeated = word;
	} else {
		add_word(word);
		path.whole = word;
	}
}

void path_add_part(struct block *block, uint32_t skipped, uint32_t executed)
{
	add_word(2 * number_of(block) + 1);
	/* QEMU's blocks have at most 512 instructions (TCG_MAX_INSNS). */
	add_word(skipped << 16 | executed);
}

void path_add_idle(void)
{
	add_word(IDLE);
}

void path_add_switch(uint64_t task, const char *comm)
{
	uint32_t words[COMM_WORDS];

	memcpy(words, comm, sizeof(words));
	add_word(SWITCH);
	add_word((uint32_t)task);
	add_word((uint32_t)(task >> 32));
	for (size_t i = 0; i < COMM_WORDS; i++)
		add_word(words[i]);
}

size_t path_words(void)
{
	return path.count;
}

/* The mixing step of SplitMix64. */
static uint64_t mixed(uint64_t value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

static struct known_path *slot_of(const uint64_t hash[2])
{
	size_t at = hash[0] & (known.room - 1);

	while (known.slots[at].number &&
	       memcmp(known.slots[at].hash, hash, sizeof(known.slots[at].hash)))
		at = (at + 1) & (known.room - 1);
	return &known.slots[at];
}

static void grow_known(void)
{
	struct known_path *old = known.slots;
	size_t room = known.room;

	known.room = room ? 2 * room : 1024;
	known.slots = checked(calloc(known.room, sizeof(*known.slots)));
	for (size_t i = 0; i < room; i++)
		if (old[i].number)
			*slot_of(old[i].hash) = old[i];
	free(old);
}

/* The chance that two different paths have the same number is 2^-128. */
uint32_t path_number(void)
{
	uint64_t hash[2] = { path.count, ~(uint64_t)path.count };
	struct known_path *slot;

	for (size_t i = 0; i < path.count; i++) {
		hash[0] = mixed(hash[0] + path.words[i] + 0x9e3779b97f4a7c15);
		hash[1] = mixed(hash[1] ^ path.words[i]);
	}
	if (2 * (size_t)out.paths >= known.room)
		grow_known();
	slot = slot_of(hash);
	if (!slot->number) {
		memcpy(slot->hash, hash, sizeof(slot->hash));
		slot->number = ++out.paths;
		PUT(PATH, (uint32_t)path.count);
		put(path.words, path.count);
	}
	return slot->number;
}

static void put_last(void)
{
	const struct arrival *a = &last.arrival;

	if (last.times)
		PUT(STAMP, a->stamp, a->path, HALVES(a->instructions), HALVES(last.times));
	last.times = 0;
}

void put_arrival(const struct arrival *arrival)
{
	const struct arrival *a = &last.arrival;

	if (arrival->stamp != a->stamp || arrival->path != a->path ||
	    arrival->instructions != a->instructions)
		put_last();
	last.arrival = *arrival;
	last.times++;
	out.stamps++;
}

void stream_close(void)
{
	put_last();
	PUT(END, out.blocks, out.paths, HALVES(out.stamps));
	if (fclose(out.file) && !out.failed)
		fprintf(stderr, "klat: the trace cannot be written: %s\n", strerror(errno));
}
