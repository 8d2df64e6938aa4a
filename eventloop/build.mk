# The backends of libraries, as backend:library. A library is there where the linker finds it, for a distribution has it
# come with its headers; a static program takes static ones. The compiler prints the bare name back of what it lacks.
# libev brings a likeness of libevent under libevent's own names, so libevent has to be linked before it.
EVENTLOOP_LIBRARIES := libevent:event_core libev:ev libuv:uv io_uring:uring
EVENTLOOP_KIND := $(if $(filter 1,$(STATIC)),a,so)
eventloop_there = $(filter /%,$(shell $(CC) -print-file-name=lib$(lastword $(subst :, ,$(1))).$(EVENTLOOP_KIND) 2>/dev/null))
EVENTLOOP_WITH := $(foreach l,$(EVENTLOOP_LIBRARIES),$(if $(call eventloop_there,$(l)),$(l)))
EVENTLOOP_WITHOUT := $(filter-out $(EVENTLOOP_WITH),$(EVENTLOOP_LIBRARIES))

LIBRARIES_eventloop := $(foreach l,$(EVENTLOOP_WITH),-l$(lastword $(subst :, ,$(l))))
LEFT_OUT_eventloop := $(foreach l,$(EVENTLOOP_WITHOUT),eventloop/backend-$(firstword $(subst :, ,$(l))).c)
EVENTLOOP_NOTE := $(foreach l,$(EVENTLOOP_WITHOUT),$(firstword $(subst :, ,$(l))))
EVENTLOOP_NOTE := $(if $(EVENTLOOP_NOTE),$(EVENTLOOP_NOTE) (sudo scripts/deps eventloop installs what they need);)

# Dasynq is headers alone, and in no distribution: make DASYNQ=DIR.
DASYNQ ?=
ifeq ($(DASYNQ),)
EVENTLOOP_NOTE += dasynq (make DASYNQ=DIR gives its headers)
else
DASYNQ_INCLUDE := $(patsubst %/dasynq.h,%,$(firstword $(wildcard $(DASYNQ)/dasynq.h $(DASYNQ)/include/dasynq.h)))
$(if $(DASYNQ_INCLUDE),,$(error DASYNQ=$(DASYNQ): there is no dasynq.h, nor include/dasynq.h))
LIBRARIES_eventloop += -lstdc++
$(BUILD)/eventloop/backend-dasynq.o: eventloop/backend-dasynq.cc $(BUILD)/flags | $(BUILD)/prerequisites
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(filter-out -std=%,$(CFLAGS)) -std=gnu++20 -isystem $(DASYNQ_INCLUDE) -MMD -MP -c -o $@ $<
$(OUT:%=%/)eventloop/eventloop: $(BUILD)/eventloop/backend-dasynq.o
-include $(BUILD)/eventloop/backend-dasynq.d
endif

# Says it once, and links anew, when what is left out changes.
$(OUT:%=%/)eventloop/eventloop: $(BUILD)/eventloop/left-out
$(BUILD)/eventloop/left-out: FORCE
	@mkdir -p $(@D)
	@echo '$(EVENTLOOP_NOTE)' | cmp -s - $@ || { echo '$(EVENTLOOP_NOTE)' > $@; \
		$(if $(EVENTLOOP_NOTE),echo '  WITHOUT $(OUT:%=%/)eventloop/eventloop: $(strip $(EVENTLOOP_NOTE))',:); }
