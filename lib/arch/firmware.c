/* SPDX-License-Identifier: MIT */
#include "arch/firmware.h"

#include "arch/isa.h"

#include <stdio.h>
#include <string.h>

/* At most size - 1 bytes, and a zero after them. How many, without this zero. */
static size_t read_text(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	size_t length = file ? fread(text, 1, size - 1, file) : 0;

	if (file)
		fclose(file);
	text[length] = 0;
	return length;
}

bool klat_arch_tree_has(const char *property, const char *wanted)
{
	char path[256], text[1024];
	size_t length;

	snprintf(path, sizeof(path), "/proc/device-tree/%s", property);
	length = read_text(path, text, sizeof(text));
	for (size_t at = 0; at < length; at += strlen(text + at) + 1)
		if (!strcmp(text + at, wanted))
			return true;
	return false;
}

/* The vendors of virtual machines, as their firmware writes them. Amazon's and Microsoft's machines
 * without a hypervisor have other products. Google's have the same vendor and product. */
static bool dmi_is_virtual(void)
{
	static const char *const vendors[] = { "QEMU",      "Xen",       "VMware",
					       "Google",    "Parallels", "innotek GmbH",
					       "OpenStack", "KubeVirt",  "oVirt" };
	static const char *const products[] = {
		"KVM", "Virtual Machine", "OpenStack", "vServer", "AHV", "CVM", "Alibaba Cloud ECS"
	};
	char vendor[256], product[256];

	read_text("/sys/class/dmi/id/sys_vendor", vendor, sizeof(vendor));
	read_text("/sys/class/dmi/id/product_name", product, sizeof(product));
	if (!strncmp(vendor, "Amazon EC2", 10))
		return !strstr(product, ".metal");
	if (!strncmp(vendor, "Microsoft", 9) || !strncmp(vendor, "Apple Inc.", 10))
		return strstr(product, "Virtual");
	for (size_t i = 0; i < sizeof(vendors) / sizeof(*vendors); i++)
		if (!strncmp(vendor, vendors[i], strlen(vendors[i])))
			return true;
	for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++)
		if (strstr(product, products[i]))
			return true;
	return false;
}

bool klat_arch_described_virtual(void)
{
	char text[2];

	return read_text("/proc/device-tree/hypervisor/compatible", text, sizeof(text)) ||
	       read_text("/sys/hypervisor/type", text, sizeof(text)) ||
	       klat_arch_tree_has("compatible", "linux,dummy-virt") ||
	       klat_arch_tree_has("compatible", "riscv-virtio") || dmi_is_virtual();
}

bool klat_arch_described_emulated(void)
{
	const char *cpu = "cpus/cpu@0/compatible";

	/* Other hypervisors describe a board "linux,dummy-virt", too. Only QEMU's has this device.
	 */
	if (klat_arch_tree_has("fw-cfg@9020000/compatible", "qemu,fw-cfg-mmio"))
		return !klat_arch_tree_has(cpu, "arm,arm-v8") &&
		       !klat_arch_tree_has(cpu, "arm,armv8");
	return klat_arch_tree_has("compatible", "riscv-virtio") &&
	       klat_arch_tree_has("soc/clint@2000000/compatible", "riscv,clint0");
}

static bool ends_with(const char *line, const char *end)
{
	size_t length = strlen(line), wanted = strlen(end);

	return length >= wanted && !strcmp(line + length - wanted, end);
}

int klat_arch_described_row(const char *line, const char *timer)
{
	if (ends_with(line, "Rescheduling interrupts"))
		return KLAT_IRQ_RES;
	if (ends_with(line, "Function call interrupts"))
		return KLAT_IRQ_CAL;
	return ends_with(line, timer) ? KLAT_IRQ_LOC : -1;
}
