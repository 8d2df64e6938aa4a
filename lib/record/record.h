/* SPDX-License-Identifier: MIT */
/* What is written to disk. */
#ifndef KLAT_RECORD_H
#define KLAT_RECORD_H

#include "run/run.h"

#include <fcntl.h>
#include <jansson.h>

#define KLAT_SCHEMA 1
#define KLAT_BOOT_ID_SIZE 37

/* False, with an empty text, if it cannot be read. */
bool klat_boot_id(char boot[static KLAT_BOOT_ID_SIZE]);

/* directory.c */
/* Open the directory of --record; make missing directories. -errno after klat_error(). */
int klat_record_directory(struct klat_run *run);

/* session.c, record.c */
/*
 * Open the session directory; make it, with its session.json, if it does not exist. Otherwise take
 * the counter's calibration from its session.json. Returns a directory descriptor, or -errno after
 * klat_error().
 */
int klat_session_join(struct klat_run *run);
/* Wait up to LOCK_LIMIT_MS for the session's lock. A signal during the wait ends the program. 0, or
 * -errno after klat_error(). */
int klat_session_lock(struct klat_run *run, int session);
/* Append the samples and rows of the run. The caller blocks the signals that end a process. */
int klat_record_append(struct klat_run *run, int session);
/* identity.c */
json_t *klat_machine_id(void);
/* The model of the CPU, or the board and its kinds of cores; null if unknown. */
json_t *klat_cpu_model(void);
/* inherited.c */
/* What the process inherited, by name: `inherited` in docs/session.md. */
json_t *klat_inherited(void);
/* The name of a value that other programs can change at any time. */
#define KLAT_INHERITED_LATENCY "dma_latency"
#define KLAT_INHERITED_RT "cpu.rt_runtime_us" /* of version 1 */
/* The shared libraries of the process with their build ids: "libc.so.6 0123456789abcdef, ...".
 * NULL without memory. */
json_t *klat_libraries(void);
/* security.c */
/* Adds the values of audit, security modules and livepatches to those of klat_inherited(). */
void klat_security_add(json_t *object);
/* Whether the kernel audits system calls. `netlink` is a socket of NETLINK_AUDIT. */
void klat_audit_describe(int netlink, char *text, size_t size);
/* Adds the profile of a security module. `context` is the line of /proc/self/attr/current. The
 * function changes this text. */
void klat_profile_add(json_t *object, char *context);
/* sharing.c */
/* Adds the group of resctrl and the cookie of core scheduling to the values of klat_inherited(). */
void klat_sharing_add(json_t *object);
/* Adds the group in the first line of the file `groups`, and what its schemata allow. */
void klat_resctrl_add(json_t *object, const char *groups, const char *mount_point);
/* append.c */
#define KLAT_APPEND (O_RDWR | O_APPEND | O_CREAT)
/* One write, then a sync. After a failure, on a full disk for example, the file is as before: it
 * has `before` bytes. 0 or -errno. */
int klat_append_synced(int fd, const void *data, size_t size, off_t before);
/* Append the samples that a segment of a soak keeps: samples/longest.csv in docs/samples.md. 0 or
 * -errno. */
int klat_longest_append(struct klat_run *run, int session, const char *name);
/* The rows of the run as in runs.csv, malloc'ed. `first` is the index of its first sample in the
 * file. */
char *klat_record_rows(struct klat_run *run, int64_t first);
extern const char klat_record_header[];

#endif
