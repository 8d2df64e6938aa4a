/* SPDX-License-Identifier: MIT */
/* Reads the guest's memory: where the scheduler changes stacks, and the names of the tasks. */
#ifndef KLAT_PLUGIN_TASKS_H
#define KLAT_PLUGIN_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COMM_BYTES 16
#define MAX_SWITCH_BYTES 64

/* The guest's memory is mapped from a file whose name contains `text`. */
void tasks_in_file(const char *text);

/* The code in which the scheduler changes stacks. Its last instruction reads one saved register of
 * the next task. */
void tasks_switch_in(const unsigned char *code, size_t size);

/* Whether the instruction is the last one of this code. The guest has it at `address`, and QEMU at
 * `host`. */
bool task_switches(const char *host, uint64_t address, size_t size);

/* The scheduler switches to the task whose saved registers are at `address`. */
void task_switched_to(uint64_t address);

/* The comm of the task whose saved registers are at `address`; empty if unknown. */
void task_name(uint64_t address, char comm[COMM_BYTES]);

#endif
