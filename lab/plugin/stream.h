/* SPDX-License-Identifier: MIT */
/* The output of the plugin: scripts/klat/explain/trace.py describes and reads it. */
#ifndef KLAT_PLUGIN_STREAM_H
#define KLAT_PLUGIN_STREAM_H

#include <stddef.h>
#include <stdint.h>

struct block {
	uint64_t address;
	uint32_t number;  /* from 1; 0 before the block is in a path */
	uint32_t length;  /* instructions */
	uint32_t sizes[]; /* of the instructions, in bytes: four in a word, the first one lowest */
};

static inline size_t size_words(size_t length)
{
	return (length + 3) / 4;
}

/* The number of a path that is not written: 0, or this if the CPU halted in it. */
#define NOT_KEPT_HALTED 0xffffffff

/* A stamp, with the number of the path that led to it. */
struct arrival {
	uint32_t stamp, path;
	uint64_t instructions; /* since the previous stamp */
};

/* Returns 0, or -1 after a message. */
int stream_open(const char *file);
void stream_close(void);

/* Begins the next path. */
void path_begin(void);
void path_add_whole(struct block *block);
void path_add_part(struct block *block, uint32_t skipped, uint32_t executed);
void path_add_idle(void);
/* `comm` has 16 bytes. */
void path_add_switch(uint64_t task, const char *comm);
/* The path's number. Writes the path if it is new. Equal paths have the same number. */
uint32_t path_number(void);
size_t path_words(void);

void put_arrival(const struct arrival *arrival);

/* Returns `memory`. Aborts if it is NULL. */
void *checked(void *memory);

#endif
