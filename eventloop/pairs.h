/* SPDX-License-Identifier: MIT */
/* The pairs: their descriptors, and how many bytes each is to get. */
#ifndef PAIRS_H
#define PAIRS_H

#include "eventloop.h"

/* Open files that the pairs take, with those that the program has besides. */
int64_t pairs_files(int64_t count, enum descriptor descriptor);
/* Raise the limit on open files, where it is lower; -EMFILE where the hard one is, which is then in
 * *hard. */
int pairs_raise_limit(int64_t files, int64_t *hard);

/* Make the descriptors of every pair. */
int pairs_open(struct loop *loop);
void pairs_close(struct loop *loop);

/*
 * The chain: `active` bytes begin evenly spaced, and each goes from pair to pair until `writes` are
 * written in all, the first ones among them. How many bytes a pair reads and passes on depends
 * neither on the order in which pairs are handled nor on which byte is taken first where two meet,
 * so it is laid down beforehand.
 */
void pairs_plan(struct loop *loop, int64_t active, int64_t writes);
/* Before a round: as planned, nothing read yet. */
void pairs_begin(struct loop *loop);
/* After it: how many pairs have read another number of bytes than planned. */
int64_t pairs_off_plan(const struct loop *loop);

#endif
