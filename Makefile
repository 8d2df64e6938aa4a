# `make help` lists the targets. V=1 shows the commands.

# Executables that are not benchmarks.
HELPERS := load/load network/client
# A benchmark is a folder, here or in bench/, with a source of the folder's name. Nothing else in the build names a
# benchmark or its place.
FOLDERS := $(foreach n,$(sort $(notdir $(basename $(wildcard */*.c bench/*/*.c)))),$(patsubst %/$(n).c,%,$(filter-out \
	$(HELPERS:=.c),$(wildcard $(n)/$(n).c bench/$(n)/$(n).c))))
PROGRAMS := $(notdir $(FOLDERS))

VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' scripts/klat/__init__.py)
# With --git-dir, because under sudo git refuses to search a tree that belongs to the caller. Only a tree from
# `make dist` has the file COMMIT.
COMMIT := $(shell git --git-dir=.git rev-parse --short=12 HEAD 2>/dev/null || cat COMMIT 2>/dev/null || echo unknown)
PYTHON := /usr/bin/python3

prefix ?= /usr/local
DESTDIR ?=
bindir = $(prefix)/bin
libexecdir = $(prefix)/libexec/klat
datadir = $(prefix)/share
mandir = $(datadir)/man
completiondir = $(datadir)/bash-completion/completions
docdir = $(datadir)/doc/klat

# OUT=DIR builds into DIR. SANITIZE=address,undefined builds with sanitizers. STATIC=1 builds for a machine, or a guest,
# without the libraries.
OUT ?=
BUILD := $(or $(OUT),build)
binary_of = $(1)/$(notdir $(1))
BINARIES := $(addprefix $(OUT:%=%/),$(foreach f,$(FOLDERS),$(call binary_of,$(f))) $(HELPERS))

ifeq ($(V),1)
Q :=
say = @:
else ifneq ($(findstring s,$(firstword -$(MAKEFLAGS))),)
Q := @
say = @:
else
Q := @
say = @printf '  %-7s %s\n'
MAKEFLAGS += --no-print-directory
endif

# A program hashes itself in each run: -g1 halves its size.
CFLAGS ?= -O2 -g1 -gz
# WERROR=1, for lint and CI: a warning is an error. A user's newer compiler may warn of more.
WERROR ?=
# ARCH=arm64 or ARCH=riscv64 builds for that machine, with the compiler CROSS_COMPILE and the libraries of SYSROOT; give
# OUT, too. The environment's ARCH and CROSS_COMPILE, which kernel builds set, have no effect.
in_environment := $(foreach name,ARCH CROSS_COMPILE,$(if $(findstring environment,$(origin $(name))),$(name)=$($(name))))
ifneq ($(if $(MAKELEVEL:0=),,$(strip $(in_environment))),)
$(warning $(strip $(in_environment)) in the environment has no effect; write it after make)
endif
CROSS_COMPILE :=
ifeq ($(origin ARCH),command line)
override ARCH := $(patsubst arm64,aarch64,$(ARCH:amd64=x86_64))
CROSS_COMPILE := $(patsubst %,%-linux-gnu-,$(filter-out portable $(shell uname -m),$(ARCH)))
endif
ifneq ($(CROSS_COMPILE),)
ifeq ($(filter %-,$(CROSS_COMPILE)),)
$(error CROSS_COMPILE=$(CROSS_COMPILE) must end in '-', as aarch64-linux-gnu-)
endif
CC := $(CROSS_COMPILE)gcc
CXX := $(CROSS_COMPILE)g++
AR := $(CROSS_COMPILE)ar
endif
# A cross compiler that is not installed yet has the name of its machine.
TRIPLET := $(or $(shell $(CC) -dumpmachine 2>/dev/null),$(CROSS_COMPILE:%-=%))
MACHINE := $(firstword $(subst -, ,$(TRIPLET)))
# `make sysroot` makes it. If it is not there, the compiler searches where it always does. Its headers and libraries
# come before those of the cross compiler, which can have another version of the C library.
SYSROOT ?= $(if $(CROSS_COMPILE),$(wildcard build/sysroot/$(MACHINE)))
ifneq ($(SYSROOT),)
in_sysroot := --sysroot=$(SYSROOT) -B$(SYSROOT)/linker/ -B$(SYSROOT)/usr/lib/$(TRIPLET)/ -L$(SYSROOT)/usr/lib/$(TRIPLET) \
	-isystem $(SYSROOT)/usr/include/$(TRIPLET) -isystem $(SYSROOT)/usr/include
# debhelper gives CC and CXX on the command line.
override CC := $(CC) $(in_sysroot)
override CXX := $(CXX) $(in_sysroot)
endif
# The folder of the ISA in lib/arch. The default is the machine that the compiler builds for, or portable if lib/arch has
# no folder for it.
ARCH := $(if $(wildcard lib/arch/$(MACHINE)/arch.h),$(MACHINE),portable)
ifeq ($(wildcard lib/arch/$(ARCH)/arch.h),)
$(error lib/arch/$(ARCH) does not exist; ARCH must be one of: $(patsubst aarch64,arm64,$(patsubst lib/arch/%/arch.h,%,$(wildcard lib/arch/*/arch.h))))
endif
ifeq ($(filter portable $(MACHINE),$(ARCH)),)
$(error ARCH is $(ARCH:aarch64=arm64), but $(or $(CROSS_COMPILE),$(CC)) builds for $(MACHINE))
endif
# `klat compare` compares builds by SHA-256.
without_paths := -ffile-prefix-map=$(CURDIR)=. $(SYSROOT:%=-ffile-prefix-map=%=)
override CFLAGS += -std=gnu11 -Wall -Wextra $(if $(WERROR),-Werror) -pthread -D_GNU_SOURCE -Ilib -Ilib/arch/$(ARCH) \
	$(without_paths)
LDLIBS := -lnuma -ljansson -lmd -lm
ifneq ($(SANITIZE),)
override CFLAGS += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer
endif
ifeq ($(STATIC),1)
override LDFLAGS += -static
endif
compile = $(CC) $(CPPFLAGS) $(CFLAGS) -DKLAT_VERSION='"$(VERSION)"' -DKLAT_COMMIT='"$(COMMIT)"' -MMD -MP
link = $(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MT $@ -MF $(BUILD)/depend/$(subst /,-,$<).d $(LDFLAGS)

LIBRARY := $(BUILD)/libklat.a
LIBRARY_OBJECTS := $(patsubst lib/%.c,$(BUILD)/lib/%.o,$(sort $(wildcard lib/*/*.c lib/arch/$(ARCH)/*.c)))
UNITS := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(sort $(wildcard tests/unit/test_*.c)))

# Root gives what it builds to the owner of the tree, who could not rebuild or delete it otherwise.
give_back = $(Q)[ "$$(id -u)" != 0 ] || chown -Rh --reference=Makefile $(BUILD) $(BINARIES) 2>/dev/null || :

.PHONY: all
all: $(BINARIES)
	$(give_back)
# Goals whose recipes make `all` wait for a goal `all`: two makes must not write the same files.
goal_all := $(filter all,$(MAKECMDGOALS))

# Targets without a folder: make pipes, make switch.
.PHONY: $(notdir $(BINARIES))
$(foreach b,$(BINARIES),$(eval $(notdir $(b)): $(b)))

.PHONY: help
help:
	@echo 'make            builds the programs'
	@echo 'make deps       installs what building, running and plotting need (root). The'
	@echo '                event libraries of eventloop: scripts/deps eventloop'
	@echo 'make sysroot    with ARCH=...: fetches the libraries to build with'
	@echo 'make bench      deps and all; then runs the five programs $${RUNS:-500} times'
	@echo '                each under LABEL, prints the table, draws the plots (root)'
	@echo 'make test       installs what the tests need, builds, runs them'
	@echo 'make test-slow  the same for the slow tests: sanitizers, fuzzing, QEMU, all'
	@echo '                programs'
	@echo 'make test-long  the same for the tests that are too long for CI'
	@echo 'make selfbench  measures klat'\''s own costs, beside perf bench and cyclictest'
	@echo '                (root)'
	@echo 'make validate   simulates how often the verdicts are right; VALIDATE=--quick is'
	@echo '                shorter'
	@echo 'make validate-looks  simulates how often interim looks are right'
	@echo 'make validate-real  tests the verdicts on this machine, in 15 minutes at most'
	@echo '                (root)'
	@echo 'make lint       checks format, types, layers, shell, YAML; make format formats'
	@echo 'make docs       builds the documentation site into build/site'
	@echo 'make static-tarball  packs static programs, for a machine without libraries'
	@echo 'make install    installs into $${prefix:-/usr/local} below DESTDIR; make uninstall'
	@echo 'make install-static  also installs the programs that klat lab runs in a guest'
	@echo 'make deb        builds Debian packages of the last commit into build/deb'
	@echo 'make wheel      builds a wheel for pip, pipx and uv into build/wheel'
	@echo 'ARCH=arm64, riscv64 or amd64 builds for that machine: with deps, sysroot, deb,'
	@echo '                wheel, static-tarball, install-static; with all and install give'
	@echo '                OUT=DIR too, or this machine'\''s programs are replaced'
	@echo 'make image      builds a container image of the last commit by podman'
	@echo 'make dist       packs the last commit into build/klat-VERSION.tar.gz'
	@echo 'make new NAME=x writes a small benchmark and its test'
	@echo 'make clean      removes what make built'

# Names missing packages before the compiler fails on every file.
$(BUILD)/prerequisites: scripts/deps $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)CC='$(CC)' CROSS_COMPILE='$(CROSS_COMPILE)' scripts/deps --check build
	@touch $@

$(BUILD)/lib/%.o: lib/%.c $(BUILD)/flags | $(BUILD)/prerequisites
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(compile) -c -o $@ $<

$(LIBRARY): $(LIBRARY_OBJECTS)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# A program is every source of its folder except helpers. Its build.mk, if it has one, may set LIBRARIES_name (to link),
# FLAGS_name (to compile with) and LEFT_OUT_name (sources that are not compiled).
-include $(wildcard $(FOLDERS:%=%/build.mk))
sources_of = $(filter-out $(HELPERS:=.c) $(LEFT_OUT_$(notdir $(1))),$(wildcard $(1)/*.c))
objects_of = $(patsubst %,$(BUILD)/%.o,$(basename $(call sources_of,$(1))))
PROGRAM_OBJECTS := $(foreach f,$(FOLDERS),$(call objects_of,$(f)))

$(PROGRAM_OBJECTS): $(BUILD)/%.o: %.c $(BUILD)/flags | $(BUILD)/prerequisites
	@mkdir -p $(@D)
	$(Q)$(compile) $(FLAGS_$(notdir $(*D))) -c -o $@ $<

# klat lab explain identifies a guest's program by its addresses, so each static program has its own 4 MiB of addresses.
comma := ,
place_of = $(if $(STATIC),-Wl$(comma)-Ttext-segment=$(shell printf '%s\n' $(PROGRAMS) $(notdir $(HELPERS)) | \
	awk '$$0 == "$(1)" { printf "%#x", 4194304 * (16 + NR) }'))

# Each binary is beside its source.
define program
$(OUT:%=%/)$(call binary_of,$(1)): $(call objects_of,$(1)) $(LIBRARY)
	@mkdir -p $$(@D)
	$$(say) CC $$@
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) $$(call place_of,$(notdir $(1))) -o $$@ $$(filter %.o %.a,$$^) $$(LIBRARIES_$(notdir $(1))) $$(LDLIBS)
endef
$(foreach f,$(FOLDERS),$(eval $(call program,$(f))))

$(HELPERS:%=$(OUT:%=%/)%): $(OUT:%=%/)%: %.c $(LIBRARY) $(BUILD)/flags
	@mkdir -p $(@D) $(BUILD)/depend
	$(say) CC $@
	$(Q)$(link) $(call place_of,$(notdir $*)) -o $@ $< $(LIBRARY) $(LDLIBS)

# The lab's plugin for QEMU. With STATIC=1 it takes the functions of whatever C library QEMU has.
PLUGIN := $(BUILD)/lab/trace.so
$(PLUGIN): $(wildcard lab/plugin/*.[ch]) $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(CC) $(CPPFLAGS) -std=gnu11 -D_GNU_SOURCE -O2 -g -gz -Wall -Wextra $(if $(WERROR),-Werror) \
		$(without_paths) -fPIC -shared -fvisibility=hidden $(if $(STATIC),-nostdlib) $(filter-out -static,$(LDFLAGS)) -o $@ $(filter %.c,$^)

# These files change only if the compiler and flags, or the commit, change.
$(BUILD)/flags: text = $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(VERSION)
$(BUILD)/commit: text = $(COMMIT)
$(BUILD)/flags $(BUILD)/commit: FORCE
	@mkdir -p $(@D)
	@echo '$(text)' | cmp -s - $@ || echo '$(text)' > $@
# These print the commit.
$(BUILD)/lib/cli/main.o $(BUILD)/lib/record/session.o: $(BUILD)/commit
.PHONY: FORCE
FORCE:

-include $(wildcard $(BUILD)/lib/*/*.d $(BUILD)/lib/arch/$(ARCH)/*.d $(BUILD)/unit/*.d $(BUILD)/depend/*.d) $(wildcard $(PROGRAM_OBJECTS:.o=.d))

.PHONY: deps test-deps test-slow-deps test-long-deps
deps:
	$(Q)CC='$(CC)' CROSS_COMPILE='$(CROSS_COMPILE)' scripts/deps build $(if $(CROSS_COMPILE),,run plot)
test-deps:
	$(Q)CC='$(CC)' scripts/deps build eventloop run plot test
test-slow-deps:
	$(Q)CC='$(CC)' scripts/deps build eventloop run plot test slow deb docs wheel
	$(Q)$(MAKE) deps ARCH=arm64
test-long-deps:
	$(Q)CC='$(CC)' scripts/deps long

.PHONY: sysroot
sysroot:
	$(if $(CROSS_COMPILE),,$(error make sysroot fetches libraries for another machine; name it: ARCH=arm64, riscv64 or amd64))
	$(Q)$(PYTHON) -B scripts/sysroot.py $(MACHINE) build/sysroot/$(MACHINE)
	$(give_back)

RUNS ?= 500
LABEL ?=
export RUNS LABEL
.PHONY: bench
bench: deps | $(goal_all)
	$(Q)$(MAKE) all
	$(Q)scripts/bench

$(BUILD)/unit/%: tests/unit/%.c tests/unit/support.c $(LIBRARY) $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) CC $@
	$(Q)$(compile) -MF $@.d -MT $@ -Itests/unit -o $@ $< tests/unit/support.c $(LIBRARY) $(LDFLAGS) $(UNIT_FLAGS) $(LDLIBS) -lcmocka

# Simulates modes and topologies that this machine does not have.
$(BUILD)/unit/test_modes: UNIT_FLAGS := -Wl,--wrap=klat_mode,--wrap=klat_cpus_online
# Simulates a device tree and DMI.
$(BUILD)/unit/test_firmware: UNIT_FLAGS := -Wl,--wrap=fopen
# Simulates another user who exchanges directories.
$(BUILD)/unit/test_files: UNIT_FLAGS := -Wl,--wrap=mkdirat
$(BUILD)/unit/test_topology: UNIT_FLAGS := -Wl,--wrap=klat_read_line,--wrap=glob,--wrap=access,--wrap=syscall
# Simulates thermal throttling, and core scheduling.
$(BUILD)/unit/test_evidence: UNIT_FLAGS := -Wl,--wrap=klat_read_count
$(BUILD)/unit/test_sharing: UNIT_FLAGS := -Wl,--wrap=prctl
# Simulates counters with an offset.
$(BUILD)/unit/test_frequency: UNIT_FLAGS := -Wl,--wrap=klat_arch_clock_step

# Copies of the programs without a build.mk. A test sets their mode.
PLANTED := $(foreach f,$(FOLDERS),$(if $(wildcard $(f)/build.mk),,$(f)))
define planted
$(BUILD)/planted/$(call binary_of,$(1)): $(call objects_of,$(1)) tests/planted/mode.c $(LIBRARY)
	@mkdir -p $$(@D)
	$$(say) CC $$@
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) -Wl,--wrap=klat_mode,--wrap=klat_cpus_online,--wrap=klat_arch_missing,--wrap=klat_arch_counter_invariant,--wrap=klat_planted,--wrap=klat_clocks_take,--wrap=klat_arch_broadcast_cpus,--wrap=klat_snapshot_take,--wrap=open -o $$@ $$(filter %.o %.c %.a,$$^) $$(LDLIBS)
endef
$(foreach f,$(PLANTED),$(eval $(call planted,$(f))))

.PHONY: planted
planted: $(foreach f,$(PLANTED),$(BUILD)/planted/$(call binary_of,$(f)))
	$(give_back)

.PHONY: units
units: $(UNITS)
	$(give_back)

# TESTS=tests/cli/test_program_usage.py runs part of a lane, one test at a time; PYTEST=-x passes options to pytest.
# Without TESTS, the tests marked `alone` run after the others: another test on the machine would disturb them. And a test
# that fails is run once more, because another guest of the host can disturb it too. The summary names it (RERUN).
# A fast test waits for half of its time, so more fast tests than CPUs run at once. A slow test keeps a CPU busy.
TESTS ?=
pytest = $(PYTHON) -B -m pytest -q -raR -p no:cacheprovider
lane_pytest = $(pytest) --reruns 1
define lane
	$(Q)$(if $(TESTS),$(pytest) -m '$(1)' $(PYTEST) $(TESTS),status=0; \
	OPENBLAS_NUM_THREADS=1 $(lane_pytest) -m '$(1) and not alone' -n $(2) --maxprocesses 4 --dist loadfile $(PYTEST) tests || status=$$?; \
	$(lane_pytest) -m '$(1) and alone' $(PYTEST) $$(grep -rl --include='*.py' mark.alone tests) || status=$$?; \
	exit $$status)
endef
.PHONY: test test-slow test-long test-build test-slow-build
# Compiles on all CPUs, or on as many as -j says. Recipes that use it begin with a plus: make recognizes another make
# only by $(MAKE) in the recipe itself.
build_all = $(MAKE) $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
# As root klat keeps no compiled modules, and each of the hundreds of starts in the tests would compile them.
test-build: test-deps | $(goal_all)
	$(Q)$(PYTHON) -m compileall -q scripts/klat
	$(Q)[ "$$(id -u)" != 0 ] || find scripts/klat -name __pycache__ -exec chown -Rh --reference=Makefile {} +
	$(Q)+$(build_all) all planted units
	$(Q)+$(build_all) OUT=build/static STATIC=1 $(STATIC_TESTED:%=build/static/%)
test-slow-build: test-slow-deps test-build
	-$(Q)$(MAKE) sysroot ARCH=arm64
	-$(Q)$(MAKE) sysroot ARCH=riscv64
	$(Q)$(MAKE) $(BUILD)/interrupter
	$(Q)$(MAKE) OUT=build/static STATIC=1 build/static/planted/timer/timer
	$(Q)+$(build_all) OUT=build/asan SANITIZE=address,undefined all units
	$(Q)+$(build_all) OUT=build/tsan SANITIZE=thread all
# What the tests of the lab run in a guest.
STATIC_TESTED := pipes/pipes tlbflush/tlbflush
test: test-build
	$(call lane,not slow and not long,4)
test-slow: test-slow-build
	$(call lane,slow and not long,auto)
test-long: test-long-deps test-slow-build
	$(call lane,long,auto)

.PHONY: selfbench
selfbench: | $(goal_all)
	$(Q)CC='$(CC)' scripts/deps build eventloop run selfbench
	$(Q)$(MAKE) all $(BUILD)/selfbench $(BUILD)/bare
	$(Q)$(PYTHON) -B tests/selfbench/selfbench.py

$(BUILD)/bare: tests/selfbench/bare.c $(BUILD)/flags
	$(say) CC $@
	$(Q)$(link) -o $@ $< -pthread

$(BUILD)/selfbench: tests/selfbench/bracket.c $(LIBRARY) $(BUILD)/flags
	@mkdir -p $(BUILD)/depend
	$(say) CC $@
	$(Q)$(link) -o $@ $< $(LIBRARY) $(LDLIBS)

# One BLAS thread for each worker: the workers use all CPUs already.
VALIDATE ?=
.PHONY: validate
validate:
	$(Q)CC='$(CC)' scripts/deps run validate
	$(Q)PYTHONPATH=scripts:tests OPENBLAS_NUM_THREADS=1 $(PYTHON) -B -m validation $(VALIDATE)

.PHONY: validate-looks
validate-looks:
	$(Q)CC='$(CC)' scripts/deps run validate
	$(Q)PYTHONPATH=scripts:tests OPENBLAS_NUM_THREADS=1 $(PYTHON) -B -m validation.campaign_looks $(VALIDATE)

.PHONY: validate-real
validate-real: | $(goal_all)
	$(Q)CC='$(CC)' scripts/deps build run validate
	$(Q)$(MAKE) all $(BUILD)/seccomp-delay
	$(Q)PYTHONPATH=scripts:tests OPENBLAS_NUM_THREADS=1 $(PYTHON) -B -m validation.real \
		--seccomp-delay $(BUILD)/seccomp-delay $(VALIDATE)

$(BUILD)/seccomp-delay: tests/validation/seccomp-delay.c $(BUILD)/flags
	@mkdir -p $(BUILD)/depend
	$(say) CC $@
	$(Q)$(link) -o $@ $<

# Interrupts a CPU, for the tests of klat explain.
$(BUILD)/interrupter: tests/planted/interrupter.c $(LIBRARY) $(BUILD)/flags
	@mkdir -p $(BUILD)/depend
	$(say) CC $@
	$(Q)$(link) -o $@ $< $(LIBRARY) $(LDLIBS)

# What `make lint` checks and `make format` formats.
SHELL_SCRIPTS := .ci/run lab/init lab/lava/measure-for-lava lab/lava/take-record \
	lab/static/measure scripts/bench scripts/deps scripts/new scripts/completion.bash \
	debian/tests/programs debian/tests/front debian/tests/lab integration/kernel-gate
C_SOURCES = $(wildcard lib/*.h lib/*/*.[ch] lib/arch/*/*.[ch] tests/unit/*.[ch] tests/planted/*.[ch] tests/selfbench/*.c tests/validation/*.c load/*.c lab/plugin/*.[ch] scripts/templates/*.c) \
	$(wildcard $(FOLDERS:%=%/*.[ch]) $(FOLDERS:%=%/*.cc))
PYTHON_SOURCES := klat setup.py ansible docs/conf.py scripts/klat scripts/figures.py scripts/reference.py scripts/sysroot.py scripts/templates tests
.PHONY: format lint lint-deps lint-c lint-build lint-layers lint-python lint-shell lint-yaml lint-version
format: lint-deps
	$(Q)clang-format -i $(C_SOURCES)
	$(Q)$(PYTHON) -m black --quiet $(PYTHON_SOURCES)
lint: lint-c lint-build lint-python lint-shell lint-yaml lint-version
lint-c lint-python lint-shell lint-yaml: lint-deps
lint-deps:
	$(Q)CC='$(CC)' scripts/deps --check lint
lint-c:
	$(Q)clang-format --dry-run -Werror $(C_SOURCES)
	$(Q)$(PYTHON) -B tests/lint/isa_rules.py $(C_SOURCES)
lint-build:
	$(Q)+$(build_all) OUT=build/lint WERROR=1 all build/lint/lab/trace.so lint-layers
# Which layer of lib may call which, and how long a file may be: tests/lint/library_rules.py.
lint-layers: $(LIBRARY_OBJECTS)
	$(Q)$(PYTHON) -B tests/lint/library_rules.py $^ \
		$(wildcard lib/*.h lib/*/*.[ch] lib/arch/*/*.[ch] load/*.c lab/plugin/*.[ch] $(FOLDERS:%=%/*.[ch]))
lint-python:
	$(Q)$(PYTHON) -m black --quiet --check --diff $(PYTHON_SOURCES)
	$(Q)$(PYTHON) -m mypy
	$(Q)$(PYTHON) -m mypy --no-warn-return-any --allow-untyped-defs --check-untyped-defs tests/lab/*.py
	$(Q)$(PYTHON) -B tests/lint/package_rules.py scripts/klat
lint-shell:
	$(Q)shellcheck $(SHELL_SCRIPTS)
lint-yaml:
	$(Q)yamllint -s -d '{extends: default, rules: {line-length: disable, braces: disable, comments: {min-spaces-from-content: 1}}}' \
		lab ansible container integration action.yml
lint-version: packaged = $(shell sed -n '1s/^klat (\(.*\)) .*/\1/p' debian/changelog)
lint-version:
	$(Q)[ '$(packaged)' = '$(VERSION)' ] || { \
		echo 'klat: debian/changelog has $(packaged), scripts/klat/__init__.py has $(VERSION)' >&2; exit 1; }

# The programs describe themselves, so those of another machine run in an emulator.
EMULATOR := $(if $(CROSS_COMPILE),qemu-$(MACHINE)-static $(SYSROOT:%=-L %))
MANUALS := $(BUILD)/man/klat.1 $(foreach p,$(PROGRAMS),$(BUILD)/man/klat-$(p).1)
.PHONY: man completion reference
man completion: reference
reference: all
	$(Q)EMULATOR='$(EMULATOR)' $(PYTHON) -B scripts/reference.py $(BUILD) $(filter-out $(HELPERS:%=$(OUT:%=%/)%),$(BINARIES))
	$(give_back)

# Every installed file, as FROM:TO. uninstall removes exactly these.
PACKAGE := $(shell find scripts/klat ansible -type f ! -path '*/__pycache__/*' 2>/dev/null | sort)
DOCUMENTS := $(wildcard README.md LICENSE docs/*.md docs/*/*.md docs/*.config docs/*.json docs/*/*.csv docs/images/*)
INSTALLED_PROGRAMS = \
	$(foreach f,$(FOLDERS),$(OUT:%=%/)$(call binary_of,$(f)):$(libexecdir)/$(notdir $(f))) \
	$(foreach h,$(HELPERS),$(OUT:%=%/)$(h):$(libexecdir)/$(subst /,-,$(h)))
FRONT_PROGRAMS = klat:$(bindir)/klat $(PLUGIN):$(libexecdir)/lab-trace.so lab/init:$(datadir)/klat/lab/init
INSTALLED_FILES = $(foreach f,$(PACKAGE),$(f):$(datadir)/klat/$(f:scripts/%=%)) \
	$(foreach f,$(MANUALS),$(f):$(mandir)/man1/$(notdir $(f))) \
	$(foreach f,$(DOCUMENTS),$(f):$(docdir)/$(f)) \
	$(BUILD)/commit:$(datadir)/klat/commit \
	$(BUILD)/completion/klat:$(completiondir)/klat

.PHONY: install install-front install-static uninstall
install: all install-front
	$(Q)for pair in $(INSTALLED_PROGRAMS); do install -D -m 755 "$${pair%%:*}" "$(DESTDIR)$${pair#*:}" || exit 1; done
	$(say) NOTE 'klat run records into results/ of the current directory; --output DIR changes that'
# All but the programs.
install-front: reference $(PLUGIN)
	$(say) INSTALL '$(DESTDIR)$(prefix)'
	$(Q)for pair in $(FRONT_PROGRAMS); do install -D -m 755 "$${pair%%:*}" "$(DESTDIR)$${pair#*:}" || exit 1; done
	$(Q)for pair in $(INSTALLED_FILES); do install -D -m 644 "$${pair%%:*}" "$(DESTDIR)$${pair#*:}" || exit 1; done
	-$(Q)$(if $(DESTDIR),,umask 022; env -u PYTHONPYCACHEPREFIX $(PYTHON) -m compileall -q '$(datadir)/klat')
	$(give_back)

# The programs that klat lab runs in a guest; with ARCH, in a guest of that architecture. The package of another
# architecture sets STATIC_PLACE=static, because its guests have its own architecture.
STATIC_BUILD := build/static$(if $(CROSS_COMPILE),-$(MACHINE:aarch64=arm64))
STATIC_PLACE := $(notdir $(STATIC_BUILD))
install-static:
	$(Q)$(MAKE) OUT=$(STATIC_BUILD) STATIC=1 all
	$(Q)cd $(STATIC_BUILD) && for program in $(patsubst $(OUT:%=%/)%,%,$(BINARIES)); do \
		install -D -m 755 $$program '$(DESTDIR)$(libexecdir)/$(STATIC_PLACE)/'$${program#bench/} || exit 1; done

# Also removes klat's own directories, with the caches that Python left in them.
uninstall:
	$(Q)for pair in $(INSTALLED_PROGRAMS) $(FRONT_PROGRAMS) $(INSTALLED_FILES); do rm -f "$(DESTDIR)$${pair#*:}"; done
	$(Q)for program in $(patsubst $(OUT:%=%/)%,%,$(BINARIES)); do \
		rm -f '$(DESTDIR)$(libexecdir)/static'*/$${program#bench/}; done
	$(Q)for own in '$(DESTDIR)$(datadir)/klat' '$(DESTDIR)$(libexecdir)' '$(DESTDIR)$(docdir)'; do \
		[ ! -d "$$own" ] || { find "$$own" -path '*/__pycache__/*.pyc' -delete; find "$$own" -depth -type d -empty -delete; }; \
	done

# A broken link is an error. Without -E, an unchanged page would not be checked again.
.PHONY: docs
docs:
	$(Q)scripts/deps docs
	$(Q)$(PYTHON) -B -m sphinx -q -E -W --keep-going -d $(BUILD)/doctrees docs $(BUILD)/site
	$(say) SITE $(BUILD)/site/index.html
	$(give_back)

# For a machine that has nothing else. The same commit and compiler make the same bytes.
STATIC_NAME := klat-programs-$(VERSION)-$(MACHINE)
STATIC_FILES = $(foreach f,$(FOLDERS),$(OUT:%=%/)$(call binary_of,$(f)):$(notdir $(f))) $(OUT:%=%/)load/load:load \
	$(OUT:%=%/)network/client:network-client lab/static/measure:measure lab/lava/measure-for-lava:measure-for-lava
SOURCE_DATE_EPOCH ?= $(or $(shell git --git-dir=.git log -1 --format=%ct 2>/dev/null),0)
STAGE = $(CURDIR)/$(STATIC_BUILD)/$@
TARBALL := build/$(STATIC_NAME).tar.gz
.PHONY: static-tarball stage-static
static-tarball:
	$(Q)rm -rf '$(STAGE)'
	$(Q)$(MAKE) OUT=$(STATIC_BUILD) STATIC=1 DESTDIR='$(STAGE)' stage-static
	$(Q)tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
		--mtime=@$(SOURCE_DATE_EPOCH) -I 'gzip -9n' -cf '$(TARBALL)' -C '$(STAGE)' $(STATIC_NAME)
	$(Q)rm -rf '$(STAGE)'
	$(say) TAR '$(TARBALL)'
	$(Q)[ "$$(id -u)" != 0 ] || chown --reference=Makefile '$(TARBALL)'
stage-static: all
	$(Q)for pair in $(STATIC_FILES); do \
		install -D -m 755 "$${pair%%:*}" '$(DESTDIR)/$(STATIC_NAME)/'"$${pair#*:}" || exit 1; done
	$(Q)install -m 644 LICENSE lab/static/README '$(DESTDIR)/$(STATIC_NAME)'

# For pip, pipx and uv: what make installs, below the prefix of a virtual environment, with the static programs only.
# setup.py packs WHEEL_PREFIX. The same commit, compiler and packages make the same bytes.
WHEEL_PREFIX := build/wheel/prefix
.PHONY: wheel stage-wheel build-wheel
wheel:
	$(Q)CC='$(CC)' CROSS_COMPILE='$(CROSS_COMPILE)' scripts/deps build eventloop wheel
	$(Q)$(MAKE) build-wheel
stage-wheel:
	$(Q)rm -rf build/wheel/prefix build/wheel/setuptools && mkdir -p build/wheel/setuptools
	$(Q)$(MAKE) OUT=$(STATIC_BUILD) STATIC=1 DESTDIR='$(CURDIR)/' prefix=$(WHEEL_PREFIX) STATIC_PLACE=static \
		install-front install-static
build-wheel: stage-wheel
	$(Q)KLAT_WHEEL_FOR=$(MACHINE) SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) \
		$(PYTHON) -m build --wheel --no-isolation --outdir build/wheel \
		>build/wheel/log 2>&1 || { cat build/wheel/log >&2; exit 1; }
	$(say) WHEEL "$$(ls build/wheel/klat-$(VERSION)-*_$(MACHINE).whl)"
	$(give_back)

# The tarball is reproducible: git gives each file the time of the commit.
DIST := build/klat-$(VERSION)
.PHONY: dist deb build-deb
dist:
	$(Q)[ -e .git ] || { echo 'klat: make dist needs a git clone' >&2; exit 1; }
	$(Q)git --no-optional-locks --git-dir=.git diff --quiet HEAD || echo 'klat: changes that are not committed are left out' >&2
	$(Q)mkdir -p build
	$(Q)git --git-dir=.git -c tar.umask=022 archive --prefix=klat-$(VERSION)/ \
		--add-virtual-file=klat-$(VERSION)/COMMIT:$(COMMIT) --output=$(DIST).tar HEAD
	$(Q)gzip -9nf $(DIST).tar
	$(say) DIST $(DIST).tar.gz
	$(give_back)

# In a copy, because dpkg-buildpackage leaves files in the tree and beside it. A tree from `make dist` has no git.
unpacked = build/deb/klat-$(VERSION)
deb_architecture = $(shell dpkg-architecture $(if $(CROSS_COMPILE),-t$(TRIPLET)) -qDEB_HOST_ARCH)
deb:
	$(Q)CC='$(CC)' CROSS_COMPILE='$(CROSS_COMPILE)' scripts/deps build eventloop deb
	$(Q)$(MAKE) build-deb

# Another machine's libraries come from SYSROOT and not from packages, so dpkg-buildpackage must not ask for these (-d).
build-deb:
	$(Q)rm -rf $(unpacked) build/deb/*_$(deb_architecture).* && mkdir -p $(unpacked)
ifneq ($(wildcard .git),)
	$(Q)$(MAKE) dist
	$(Q)tar -xzf $(DIST).tar.gz -C build/deb
else
	$(Q)tar -c --exclude=./build --exclude=./results . | tar -x -C $(unpacked)
endif
	$(Q)cd $(unpacked) && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u CFLAGS -u CPPFLAGS -u LDFLAGS \
		SYSROOT='$(abspath $(SYSROOT))' dpkg-buildpackage -us -uc -b $(if $(CROSS_COMPILE),-d -t$(TRIPLET))
	$(Q)rm -r $(unpacked)
	$(say) DEB "$$(ls build/deb/*_$(deb_architecture).deb | tr '\n' ' ')"
	$(give_back)

# The part of the changes of this version.
.PHONY: release-notes
release-notes:
	$(Q)awk '/^## /{printed = index($$2, "$(VERSION)") == 1} printed' CHANGELOG.md

# BASE is an image of Debian, MORE are further packages in the image: docs/container.md.
BASE :=
MORE :=
PODMAN ?= podman
.PHONY: image
image: dist
	$(Q)rm -rf build/image && mkdir build/image && cp $(DIST).tar.gz build/image
	$(Q)$(PODMAN) build --file container/Containerfile $(BASE:%=--build-arg BASE=%) --build-arg MORE='$(MORE)' \
		--tag klat --tag klat:$(VERSION) build/image
	$(give_back)

.PHONY: new
new:
	$(Q)scripts/new '$(NAME)'

.PHONY: clean
clean:
	$(Q)rm -rf $(BUILD) $(BINARIES)
	$(Q)find scripts tests -name __pycache__ -prune -exec rm -rf {} +
