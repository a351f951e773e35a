// SPDX-License-Identifier: GPL-2.0
/*
 * The module `nvidia` of the test double: parameters, /proc/driver/nvidia, what is made at load and goes at unload.
 *
 * In: gpus=N. Out: what the other files offer. What can go wrong: major 195 is taken, no memory; then it does not load.
 */
#include "nvidia.h"

int gpus = 2;
module_param(gpus, int, 0444);
MODULE_PARM_DESC(gpus, "how many GPUs there are (1..8)");

nv_state_t nv_states[NV_GPUS_MAX];
nv_state_t nv_ctl = { .minor = NV_MINOR_CTL };

static const u8 buses[NV_GPUS_MAX] = { 0x3b, 0x5e, 0x86, 0xaf, 0x1b, 0x3e, 0x88, 0xb1 };
static struct proc_dir_entry *folder;

static int command(char *line)
{
	if (!strncmp(line, "lock ", 5))
		return nv_locks_command(line);
	if (!strncmp(line, "power ", 6))
		return nv_power_command(line);
	if (!strncmp(line, "xid", 3))
		return nv_report_command(line);
	return -EINVAL;
}

struct sim nvidia_sim = {
	.control = "driver/nvidia_sim",
	.command = command,
};

static int version_show(struct seq_file *m, void *v)
{
	seq_puts(m, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " __stringify(SIM_BRANCH)
		 ".0  Test Double  (not the vendor's driver)\n");
	return 0;
}

static int information_show(struct seq_file *m, void *v)
{
	nv_state_t *nv = m->private;

	seq_puts(m, "Model: \t\t Test Double\n");
	seq_puts(m, "IRQ:   \t\t 0\n");
	seq_printf(m, "GPU UUID: \t GPU-5ca1ab1e-0000-4000-8000-%012x\n", nv->minor);
	seq_puts(m, "Bus Type: \t PCIe\n");
	seq_printf(m, "Bus Location: \t %s\n", pci_name(nv->pci));
	seq_printf(m, "Device Minor: \t %u\n", nv->minor);
	return 0;
}

static int folders(void)
{
	struct proc_dir_entry *all;
	int i;

	folder = proc_mkdir("driver/nvidia", NULL);
	if (!folder || !proc_create_single("version", 0444, folder, version_show))
		return -ENOMEM;
	all = proc_mkdir("gpus", folder);
	if (!all)
		return -ENOMEM;
	for (i = 0; i < gpus; i++) {
		struct proc_dir_entry *one = proc_mkdir(pci_name(nv_states[i].pci), all);

		if (!one || !proc_create_single_data("information", 0444, one, information_show, &nv_states[i]))
			return -ENOMEM;
	}
	return 0;
}

static void no_devices(void)
{
	int i;

	for (i = 0; i < NV_GPUS_MAX; i++)
		nv_pci_free(nv_states[i].pci);
}

static int devices(void)
{
	char name[16];
	int i;

	sema_init(&nv_ctl.ldata_lock, 1);
	for (i = 0; i < gpus; i++) {
		nv_states[i].minor = i;
		sema_init(&nv_states[i].ldata_lock, 1);
		snprintf(name, sizeof(name), "0000:%02x:00.0", buses[i]);
		nv_states[i].pci = nv_pci_new(name);
		if (!nv_states[i].pci) {
			no_devices();
			return -ENOMEM;
		}
	}
	return 0;
}

static int __init nvidia_init_module(void)
{
	int err;

	if (gpus < 1 || gpus > NV_GPUS_MAX)
		return -EINVAL;
	err = devices();
	if (err)
		return err;
	err = nv_locks_begin();
	if (err)
		goto out_devices;
	err = folders();
	if (err)
		goto out_folders;
	/* calls count from the first on: rules and counts are there before the files */
	err = sim_begin(&nvidia_sim);
	if (err)
		goto out_folders;
	err = nv_files_begin();
	if (err)
		goto out_sim;
	printk(KERN_INFO "NVRM: loading the test double, not the vendor's driver\n");
	return 0;
out_sim:
	sim_end(&nvidia_sim);
out_folders:
	proc_remove(folder);
	nv_locks_end();
out_devices:
	no_devices();
	return err;
}

static void __exit nvidia_exit_module(void)
{
	nv_files_end();
	sim_end(&nvidia_sim);
	nv_locks_end();
	proc_remove(folder);
	no_devices();
}

module_init(nvidia_init_module);
module_exit(nvidia_exit_module);
MODULE_LICENSE("GPL");
MODULE_VERSION(__stringify(SIM_BRANCH) ".0");
MODULE_DESCRIPTION("Test double of a GPU driver");
