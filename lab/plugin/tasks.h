/* SPDX-License-Identifier: MIT */
/* Reads the names of the guest's tasks from the guest's memory. */
#ifndef KLAT_PLUGIN_TASKS_H
#define KLAT_PLUGIN_TASKS_H

#include <stdint.h>

#define COMM_BYTES 16

/* The guest's memory is mapped from a file whose name contains `text`. */
void tasks_in_file(const char *text);

/* The scheduler switches to the task whose saved stack pointer is at `address`. */
void task_switched_to(uint64_t address);

/* The comm of the task whose saved stack pointer is at `address`; empty if unknown. */
void task_name(uint64_t address, char comm[COMM_BYTES]);

#endif
