/* SPDX-License-Identifier: MIT */
/* The pairs: their descriptors, and the number of bytes for each. */
#ifndef PAIRS_H
#define PAIRS_H

#include "eventloop.h"

/* Open files besides those of the pairs: standard streams, the record, and those of a library. */
#define OTHER_FILES 64

/* Make the descriptors of every pair. */
int pairs_open(struct loop *loop);
void pairs_close(struct loop *loop);

/*
 * The chain: `active` bytes start evenly spaced, and each goes from pair to pair until `writes`
 * bytes are written, including the first ones. The number of bytes that a pair reads and passes on
 * does not depend on the order in which pairs are handled, nor on which of two bytes is read first.
 * So it is planned before the rounds.
 */
void pairs_plan(struct loop *loop, int64_t active, int64_t writes);
/* Before a round: reset the pairs to the plan. */
void pairs_begin(struct loop *loop);
/* After a round: how many pairs read another number of bytes than planned. */
int64_t pairs_off_plan(const struct loop *loop);

#endif
