/* SPDX-License-Identifier: MIT */
/* The group of resctrl, from files like the kernel's, and the cookie of core scheduling, from a
 * stand-in for prctl(2). */
#include "support.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/record.h"

static int refusal;
static uint64_t cookie;

int __wrap_prctl(int option, int command, int thread, int type, uint64_t *out)
{
	assert_int_equal(option, 62); /* PR_SCHED_CORE */
	assert_int_equal(command + thread + type, 0);
	errno = refusal;
	if (!refusal)
		*out = cookie;
	return refusal ? -1 : 0;
}

TEST(a_cookie_of_core_scheduling_is_recorded_but_not_its_number)
{
	static const struct {
		int refusal;
		uint64_t cookie;
		const char *expected;
	} cases[] = {
		{ 0, 0xdeadbeef, "cookie" }, { 0, 0, "none" },   { EINVAL, 0, "none" },
		{ ENODEV, 0, "none" },       { EPERM, 0, NULL },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		json_t *object = json_object();
		const char *text;

		refusal = cases[i].refusal;
		cookie = cases[i].cookie;
		klat_sharing_add(object);
		text = json_string_value(json_object_get(object, "core_scheduling"));
		assert_int_equal(!text, !cases[i].expected);
		if (text)
			assert_string_equal(text, cases[i].expected);
		json_decref(object);
	}
}

static void assert_resctrl(const char *groups, const char *expected)
{
	json_t *object = json_object();
	char *text;

	test_write(test_path(directory, "groups"), groups, strlen(groups));
	klat_resctrl_add(object, test_path(directory, "groups"), directory);
	text = json_dumps(object, JSON_SORT_KEYS | JSON_COMPACT);
	assert_string_equal(text, expected);
	free(text);
	json_decref(object);
}

TEST(the_group_of_resctrl_and_its_schemata_are_recorded)
{
	const char root[] = "    MB:0=  100;1= 2048\n    L3:0=fffff;1=fffff\n",
		   group[] = "L3:0=f;1=f\n";

	assert_int_equal(mkdir(test_path(directory, "group"), 0755), 0);
	test_write(test_path(directory, "schemata"), root, strlen(root));
	test_write(test_path(directory, "group/schemata"), group, strlen(group));
	assert_resctrl("res:/\nmon:/\n", "{\"resctrl\":\"/\",\"resctrl.L3\":\"0=fffff;1=fffff\","
					 "\"resctrl.MB\":\"0=100;1=2048\"}");
	assert_resctrl("res:group\nmon:\n", "{\"resctrl\":\"group\",\"resctrl.L3\":\"0=f;1=f\"}");
	assert_resctrl("res:hidden\nmon:\n", "{\"resctrl\":\"hidden\"}");
	assert_resctrl("res:\nmon:\n", "{\"resctrl\":\"none\"}"); /* not mounted */
	assert_resctrl("", "{}");
}
