/* SPDX-License-Identifier: MIT */
/* Verbatim copies of the files that decide latency, each at its own path below environment/. */
#include "machine/machine.h"

#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *const patterns[] = {
	"/etc/ld.so.preload",
	"/etc/os-release",
	"/proc/cmdline",
	"/proc/config.gz",
	"/proc/cpuinfo",
	"/proc/interrupts",
	"/proc/loadavg",
	"/proc/meminfo",
	"/proc/net/ptype",
	"/proc/self/cgroup",
	"/proc/self/limits",
	"/proc/self/status",
	"/proc/self/timerslack_ns",
	"/proc/stat",
	"/proc/swaps",
	"/proc/sys/kernel/bootloader_type",
	"/proc/sys/kernel/hung_task_timeout_secs",
	"/proc/sys/kernel/lock_stat",
	"/proc/sys/kernel/nmi_watchdog",
	"/proc/sys/kernel/numa_balancing",
	"/proc/sys/kernel/osrelease",
	"/proc/sys/kernel/perf_event_paranoid",
	"/proc/sys/kernel/prove_locking",
	"/proc/sys/kernel/randomize_va_space",
	"/proc/sys/kernel/sched_*",
	"/proc/sys/kernel/stack_tracer_enabled",
	"/proc/sys/kernel/task_delayacct",
	"/proc/sys/kernel/timer_migration",
	"/proc/sys/kernel/version",
	"/proc/sys/kernel/watchdog",
	"/proc/sys/net/core/busy_*",
	"/proc/sys/net/core/flow_limit_cpu_bitmap",
	"/proc/sys/net/core/high_order_alloc_disable",
	"/proc/sys/net/core/max_skb_frags",
	"/proc/sys/net/core/rps_default_mask",
	"/proc/sys/net/core/rps_sock_flow_entries",
	"/proc/sys/net/core/wmem_default",
	"/proc/sys/net/ipv4/tcp_adv_win_scale",
	"/proc/sys/net/ipv4/tcp_backlog_ack_defer",
	"/proc/sys/net/ipv4/tcp_congestion_control",
	"/proc/sys/net/ipv4/tcp_moderate_rcvbuf",
	"/proc/sys/net/ipv4/tcp_mtu_probing",
	"/proc/sys/net/ipv4/tcp_notsent_lowat",
	"/proc/sys/net/ipv4/tcp_rmem",
	"/proc/sys/net/ipv4/tcp_tso_win_divisor",
	"/proc/sys/net/ipv4/tcp_window_scaling",
	"/proc/sys/net/ipv4/tcp_wmem",
	"/proc/sys/vm/legacy_va_layout",
	"/proc/sys/vm/mem_profiling",
	"/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/percpu_pagelist_*",
	"/proc/sys/vm/stat_interval",
	"/proc/sys/vm/swappiness",
	"/sys/class/dmi/id/bios_version",
	"/sys/class/dmi/id/product_name",
	"/sys/class/dmi/id/sys_vendor",
	"/sys/class/net/lo/queues/rx-0/rps_cpus",
	"/sys/class/powercap/intel-rapl*/constraint_*_power_limit_uw",
	"/sys/devices/cpu_*/cpus",
	"/sys/devices/system/clocksource/clocksource0/available_clocksource",
	"/sys/devices/system/clocksource/clocksource0/current_clocksource",
	"/sys/devices/system/cpu/cpu*/acpi_cppc/highest_perf",
	"/sys/devices/system/cpu/cpu*/acpi_cppc/lowest_freq",
	"/sys/devices/system/cpu/cpu*/acpi_cppc/lowest_nonlinear_perf",
	"/sys/devices/system/cpu/cpu*/acpi_cppc/lowest_perf",
	"/sys/devices/system/cpu/cpu*/acpi_cppc/nominal_freq",
	"/sys/devices/system/cpu/cpu*/acpi_cppc/nominal_perf",
	"/sys/devices/system/cpu/cpu*/cpu_capacity",
	"/sys/devices/system/cpu/cpu*/cpufreq/amd_pstate_lowest_nonlinear_freq",
	"/sys/devices/system/cpu/cpu*/cpufreq/boost",
	"/sys/devices/system/cpu/cpu*/cpufreq/conservative/*",
	"/sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq",
	"/sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_min_freq",
	"/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference",
	"/sys/devices/system/cpu/cpu*/cpufreq/ondemand/*",
	"/sys/devices/system/cpu/cpu*/cpufreq/scaling_driver",
	"/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
	"/sys/devices/system/cpu/cpu*/cpufreq/scaling_max_freq",
	"/sys/devices/system/cpu/cpu*/cpufreq/scaling_min_freq",
	"/sys/devices/system/cpu/cpu*/cpufreq/scaling_setspeed",
	"/sys/devices/system/cpu/cpu*/cpufreq/schedutil/*",
	"/sys/devices/system/cpu/cpu*/cpuidle/state*/default_status",
	"/sys/devices/system/cpu/cpu*/cpuidle/state*/desc",
	"/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
	"/sys/devices/system/cpu/cpu*/cpuidle/state*/latency",
	"/sys/devices/system/cpu/cpu*/cpuidle/state*/name",
	"/sys/devices/system/cpu/cpu*/microcode/version",
	"/sys/devices/system/cpu/cpu*/power/energy_perf_bias",
	"/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us",
	"/sys/devices/system/cpu/cpu*/regs/identification/midr_el1",
	"/sys/devices/system/cpu/cpufreq/boost",
	"/sys/devices/system/cpu/cpufreq/conservative/*",
	"/sys/devices/system/cpu/cpufreq/ondemand/*",
	"/sys/devices/system/cpu/cpufreq/schedutil/*",
	"/sys/devices/system/cpu/cpuidle/available_governors",
	"/sys/devices/system/cpu/cpuidle/current_driver",
	"/sys/devices/system/cpu/cpuidle/current_governor*",
	"/sys/devices/system/cpu/cpuidle/intel_c1_demotion",
	"/sys/devices/system/cpu/intel_pstate/hwp_dynamic_boost",
	"/sys/devices/system/cpu/intel_pstate/max_perf_pct",
	"/sys/devices/system/cpu/intel_pstate/min_perf_pct",
	"/sys/devices/system/cpu/intel_pstate/no_turbo",
	"/sys/devices/system/cpu/intel_uncore_frequency/*/max_freq_khz",
	"/sys/devices/system/cpu/intel_uncore_frequency/*/min_freq_khz",
	"/sys/devices/system/cpu/isolated",
	"/sys/devices/system/cpu/nohz_full",
	"/sys/devices/system/cpu/online",
	"/sys/devices/system/cpu/smt/control",
	"/sys/devices/system/cpu/vulnerabilities/*",
	"/sys/devices/system/node/node*/cpulist",
	"/sys/firmware/acpi/platform_profile",
	"/sys/firmware/acpi/pm_profile",
	"/sys/kernel/debug/fault_around_bytes",
	"/sys/kernel/debug/sched/*_ns",
	"/sys/kernel/debug/sched/*_server/cpu*/period",
	"/sys/kernel/debug/sched/*_server/cpu*/runtime",
	"/sys/kernel/debug/sched/features",
	"/sys/kernel/debug/sched/nr_migrate",
	"/sys/kernel/debug/sched/preempt",
	"/sys/kernel/debug/sched/tunable_scaling",
	"/sys/kernel/debug/x86/tlb_single_page_flush_ceiling",
	"/sys/kernel/mm/damon/admin/kdamonds/0/state",
	"/sys/kernel/mm/ksm/run",
	"/sys/kernel/mm/lru_gen/enabled",
	"/sys/kernel/mm/transparent_hugepage/enabled",
	"/sys/kernel/mm/transparent_hugepage/hugepages-*/enabled",
	"/sys/kernel/mm/transparent_hugepage/hugepages-*/shmem_enabled",
	"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
	"/sys/kernel/realtime",
	"/sys/kernel/sched_ext/enable_seq",
	"/sys/kernel/sched_ext/root/ops",
	"/sys/kernel/sched_ext/state",
	"/sys/kernel/sched_ext/switch_all",
	"/sys/module/haltpoll/parameters/*",
	"/sys/module/intel_idle/parameters/max_cstate",
	"/sys/module/kernel/parameters/*",
	"/sys/module/processor/parameters/max_cstate",
	"/sys/module/rcutree/parameters/use_softirq",
};

/* A file that cannot be read is left out. */
static int copy(struct klat_run *run, int session, const char *session_name, const char *path)
{
	char buffer[16384], name[512];
	/* lxcfs covers none of these files. Another file system may. */
	const bool of_kernel = !strcmp(path, "/proc/cmdline") || !strncmp(path, "/proc/sys/", 10);
	int from = of_kernel && !klat_is_in_proc(path)
			   ? -1
			   : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK),
	    to = -1, err = 0;
	struct stat status;
	ssize_t size;

	if (from < 0)
		return 0;
	snprintf(name, sizeof(name), "environment%s", path);
	if (!fstat(from, &status) && S_ISREG(status.st_mode)) {
		while (!err && (size = read(from, buffer, sizeof(buffer))) > 0) {
			if (to < 0)
				to = klat_file_open(session, name, O_WRONLY | O_CREAT | O_TRUNC);
			err = to < 0 ? to : klat_write_whole(to, buffer, size);
		}
	}
	if (to >= 0)
		close(to);
	close(from);
	return err ? klat_error(run, -err, "cannot record into %s: %s: %s", session_name, name,
				klat_file_error(-err))
		   : 0;
}

int klat_environment_capture(struct klat_run *run, int session, const char *name)
{
	struct utsname names;
	int err = 0;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(patterns) && !err; i++) {
		glob_t found;

		if (glob(patterns[i], 0, NULL, &found))
			continue;
		for (size_t f = 0; f < found.gl_pathc && !err; f++)
			err = copy(run, session, name, found.gl_pathv[f]);
		globfree(&found);
	}
	if (err)
		return err;
	uname(&names);
	return copy(run, session, name, klat_path("/boot/config-%.100s", names.release));
}
