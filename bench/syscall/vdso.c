/* SPDX-License-Identifier: MIT */
/* The functions that the kernel maps into every process (vdso(7)), by name. The C library keeps
 * their addresses to itself. */
#include "syscall.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

struct vdso {
	const ElfW(Sym) * symbols;
	const char *names;
	size_t count;
};

/* Addresses in the tables are offsets from its start, because its first segment is at 0. */
static struct vdso tables_of(const char *image)
{
	const ElfW(Ehdr) *header = (const void *)image;
	const ElfW(Phdr) *segments = (const void *)(image + header->e_phoff);
	const ElfW(Dyn) *entry = NULL;
	struct vdso vdso = { 0 };

	for (int i = 0; i < header->e_phnum; i++)
		if (segments[i].p_type == PT_DYNAMIC)
			entry = (const void *)(image + segments[i].p_offset);
	for (; entry && entry->d_tag != DT_NULL; entry++) {
		const char *at = image + entry->d_un.d_ptr;

		if (entry->d_tag == DT_SYMTAB)
			vdso.symbols = (const void *)at;
		else if (entry->d_tag == DT_STRTAB)
			vdso.names = at;
		else if (entry->d_tag == DT_HASH)
			vdso.count = ((const uint32_t *)at)[1]; /* nchain */
	}
	/* Some vDSOs have only DT_GNU_HASH, which has no count. There the names follow the symbols.
	 */
	if (!vdso.count && vdso.symbols && vdso.names > (const char *)vdso.symbols)
		vdso.count = (vdso.names - (const char *)vdso.symbols) / sizeof(*vdso.symbols);
	return vdso;
}

vdso_function vdso_find(const char *name)
{
	static const char *const prefixes[] = { "__vdso_", "__kernel_" };
	const char *image = (const char *)getauxval(AT_SYSINFO_EHDR);
	struct vdso vdso = { 0 };

	if (image)
		vdso = tables_of(image);
	for (size_t i = 0; i < vdso.count; i++) {
		const char *symbol = vdso.names + vdso.symbols[i].st_name;

		for (size_t p = 0; p < KLAT_ARRAY_SIZE(prefixes); p++) {
			const size_t length = strlen(prefixes[p]);

			if (vdso.symbols[i].st_value && !strncmp(symbol, prefixes[p], length) &&
			    !strcmp(symbol + length, name))
				return (vdso_function)(image + vdso.symbols[i].st_value);
		}
	}
	return NULL;
}
