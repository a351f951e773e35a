// SPDX-License-Identifier: GPL-2.0
/*
 * The module `nvidia_uvm` of the test double: what is made at load and goes at unload.
 *
 * In: nothing. Out: what the other files offer. What can go wrong: no memory, no free major; then it does not load.
 */
#include "nvidia-uvm.h"

static int command(char *line)
{
	return uvm_faults_command(line);
}

struct sim uvm_sim = {
	.control = "driver/nvidia_uvm_sim",
	.command = command,
};

static int __init uvm_init(void)
{
	int err = uvm_faults_begin();

	if (err)
		return err;
	/* calls count from the first on: rules and counts are there before the files */
	err = sim_begin(&uvm_sim);
	if (err)
		goto out_faults;
	err = uvm_files_begin();
	if (err)
		goto out_sim;
	return 0;
out_sim:
	sim_end(&uvm_sim);
out_faults:
	uvm_faults_end();
	return err;
}

static void __exit uvm_exit(void)
{
	uvm_files_end();
	sim_end(&uvm_sim);
	uvm_faults_end();
}

module_init(uvm_init);
module_exit(uvm_exit);
MODULE_LICENSE("GPL");
MODULE_VERSION(__stringify(SIM_BRANCH) ".0");
MODULE_DESCRIPTION("Test double of a GPU memory driver");
