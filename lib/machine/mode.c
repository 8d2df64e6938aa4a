/* SPDX-License-Identifier: MIT */
/* The mode of docs/session.md. klat_mode() has a file of its own, so that the linker can replace it
 * in a test. */
#include "machine/machine.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

static int has_code(struct dl_phdr_info *info, size_t size, void *pc)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) &&
		    *(uintptr_t *)pc - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
			return 1;
	}
	return 0;
}

/* Whether other code makes this program's system calls: an emulator of user space or a translator
 * of binaries (valgrind, Pin, box64). The kernel shows where the call that reads this file is. */
static bool is_translated(void)
{
	char text[256];
	const char *last = klat_read_small("/proc/thread-self/syscall", text, sizeof(text)) > 0
				   ? strrchr(text, ' ')
				   : NULL;
	uintptr_t pc = last ? strtoull(last, NULL, 16) : 0;

	return last && !dl_iterate_phdr(has_code, &pc);
}

static const char *mode;

const char *klat_mode(void)
{
	static const char *const names[] = { [KLAT_ARCH_HARDWARE] = "hardware",
					     [KLAT_ARCH_VIRTUAL] = "virtual",
					     [KLAT_ARCH_EMULATED] = "emulated" };
	char line[4096];

	if (!mode) {
		mode = names[klat_arch_machine()];
		/* A guest cannot see whether its emulator counts instructions. The lab says so
		 * on the guest's command line. */
		klat_read_line("/proc/cmdline", line, sizeof(line));
		if (klat_arch_machine() == KLAT_ARCH_EMULATED && strstr(line, "klat.mode=counted"))
			mode = "counted";
		if (is_translated())
			mode = "emulated";
	}
	return mode;
}

void klat_mode_assume(const char *assumed)
{
	mode = assumed;
}
