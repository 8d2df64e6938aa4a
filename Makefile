# klat: what to type is in README.md. V=1 shows the commands; SANITIZE=address,undefined builds with sanitizers.

PROGRAMS := pipes cv tlbflush timer network

VERSION := 0.1.0
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
PYTHON := /usr/bin/python3

prefix ?= /usr/local
DESTDIR ?=
bindir = $(prefix)/bin
libexecdir = $(prefix)/libexec/klat
datadir = $(prefix)/share
RUNS ?= 500

BUILD ?= build
ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-7s %s\n'
endif

CFLAGS ?= -O2 -g
override CFLAGS += -std=gnu11 -Wall -Wextra -Werror -pthread -D_GNU_SOURCE -Ilib
LDLIBS := -lnuma -ljansson -lmd -lm
ifneq ($(SANITIZE),)
override CFLAGS += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer
endif

LIBRARY := $(BUILD)/libklat.a
LIBRARY_OBJECTS := $(patsubst lib/%.c,$(BUILD)/lib/%.o,$(sort $(wildcard lib/*.c)))
BINARIES := $(foreach p,$(PROGRAMS),$(p)/$(p)) network/client

.PHONY: all
all: $(BINARIES)

$(BUILD)/lib/%.o: lib/%.c lib/klat.h lib/internal.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(CFLAGS) -DKLAT_VERSION='"$(VERSION)"' -DKLAT_COMMIT='"$(COMMIT)"' -c -o $@ $<

$(LIBRARY): $(LIBRARY_OBJECTS)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

define program
$(1): $(1).c $(LIBRARY) lib/klat.h
	$$(say) CC $$@
	$$(Q)$$(CC) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$< $(LIBRARY) $$(LDLIBS)
endef
$(foreach p,$(BINARIES),$(eval $(call program,$(p))))

# Rebuilds when compiler or flags change, and only then.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CFLAGS) $(LDFLAGS) $(COMMIT)' | cmp -s - $@ || echo '$(CC) $(CFLAGS) $(LDFLAGS) $(COMMIT)' > $@
.PHONY: FORCE
FORCE:
