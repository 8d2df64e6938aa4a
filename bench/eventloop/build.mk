EVENTLOOP := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
# The backends that need a library, as backend:library. If the linker finds the library, its headers are taken to be
# there too. cc -print-file-name prints a path for a library that it finds, and the bare name otherwise. libev contains
# functions with libevent's names, so libevent comes before it on the linker's command line.
EVENTLOOP_LIBRARIES := libevent:event_core libev:ev libuv:uv io_uring:uring
EVENTLOOP_KIND := $(if $(filter 1,$(STATIC)),a,so)
eventloop_there = $(findstring /,$(shell $(CC) -print-file-name=lib$(lastword $(subst :, ,$(1))).$(EVENTLOOP_KIND) 2>/dev/null))
EVENTLOOP_WITH := $(foreach l,$(EVENTLOOP_LIBRARIES),$(if $(call eventloop_there,$(l)),$(l)))
EVENTLOOP_WITHOUT := $(filter-out $(EVENTLOOP_WITH),$(EVENTLOOP_LIBRARIES))

LIBRARIES_eventloop := $(foreach l,$(EVENTLOOP_WITH),-l$(lastword $(subst :, ,$(l))))
LEFT_OUT_eventloop := $(foreach l,$(EVENTLOOP_WITHOUT),$(EVENTLOOP)/backend-$(firstword $(subst :, ,$(l))).c)
EVENTLOOP_NOTE := $(foreach l,$(EVENTLOOP_WITHOUT),$(firstword $(subst :, ,$(l))))
EVENTLOOP_NOTE := $(if $(EVENTLOOP_NOTE),$(EVENTLOOP_NOTE) (sudo scripts/deps eventloop installs what they need);)

# Dasynq consists of headers, and no distribution has it: make DASYNQ=DIR.
DASYNQ ?=
ifeq ($(DASYNQ),)
EVENTLOOP_NOTE += dasynq (make DASYNQ=DIR gives its headers)
else
DASYNQ_INCLUDE := $(patsubst %/dasynq.h,%,$(firstword $(wildcard $(DASYNQ)/dasynq.h $(DASYNQ)/include/dasynq.h)))
$(if $(DASYNQ_INCLUDE),,$(error DASYNQ=$(DASYNQ) has no dasynq.h and no include/dasynq.h))
LIBRARIES_eventloop += -lstdc++
$(BUILD)/$(EVENTLOOP)/backend-dasynq.o: $(EVENTLOOP)/backend-dasynq.cc $(BUILD)/flags | $(BUILD)/prerequisites
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(filter-out -std=%,$(CFLAGS)) -std=gnu++20 -isystem $(DASYNQ_INCLUDE) -MMD -MP -c -o $@ $<
$(OUT:%=%/)$(EVENTLOOP)/eventloop: $(BUILD)/$(EVENTLOOP)/backend-dasynq.o
-include $(BUILD)/$(EVENTLOOP)/backend-dasynq.d
endif

# If the list of missing backends changes, prints the list and links again.
$(OUT:%=%/)$(EVENTLOOP)/eventloop: $(BUILD)/$(EVENTLOOP)/left-out
$(BUILD)/$(EVENTLOOP)/left-out: FORCE
	@mkdir -p $(@D)
	@echo '$(EVENTLOOP_NOTE)' | cmp -s - $@ || { echo '$(EVENTLOOP_NOTE)' > $@; \
		$(if $(EVENTLOOP_NOTE),echo '  WITHOUT $(OUT:%=%/)$(EVENTLOOP)/eventloop: $(strip $(EVENTLOOP_NOTE))',:); }
