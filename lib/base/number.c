/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

bool klat_parse_number(const char *text, int64_t minimum, int64_t maximum, int64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoll(text, &end, 10);
	/* strtoll() skips white space and takes a plus sign. */
	return isdigit((unsigned char)text[text[0] == '-']) && !*end && !errno &&
	       *number >= minimum && *number <= maximum;
}
