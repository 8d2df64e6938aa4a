/* SPDX-License-Identifier: MIT */
/* main() of the programs. Helpers and tests have their own. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
	return klat_main(&klat_benchmark, argc, argv);
}
