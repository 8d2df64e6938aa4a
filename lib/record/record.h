/* SPDX-License-Identifier: MIT */
/* What is written to disk. */
#ifndef KLAT_RECORD_H
#define KLAT_RECORD_H

#include "run/run.h"

#define KLAT_SCHEMA 1

/* directory.c */
/* Open the directory of --record; make missing directories. -errno after klat_error(). */
int klat_record_directory(struct klat_run *run);

/* session.c, record.c */
/*
 * Open the session directory for recording, creating it when there is none, and take from it or
 * give it the calibration. Returns a directory descriptor, or -errno after klat_error().
 */
int klat_session_join(struct klat_run *run);
/* Wait up to LOCK_LIMIT_MS for the session's lock. A signal during the wait ends the program. 0, or
 * -errno after klat_error(). */
int klat_session_lock(struct klat_run *run, int session);
/* Append the samples and rows of the run. All signals that end a process are held off meanwhile. */
int klat_record_append(struct klat_run *run, int session);
/* The rows of the run as in runs.csv, malloc'ed. `first` is where its samples begin in the file. */
char *klat_record_rows(struct klat_run *run, int64_t first);
extern const char klat_record_header[];

#endif
