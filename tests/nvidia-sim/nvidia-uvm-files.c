// SPDX-License-Identifier: GPL-2.0
/*
 * The device file of UVM: a dynamic major, minor 0.
 *
 * In: system calls. Out: the driver's own functions are called, and behave as the rules say.
 */
#include <linux/cdev.h>

#include "nvidia-uvm.h"

static dev_t device;
static struct cdev uvm_cdev;

static noinline int uvm_open_entry(struct inode *inode, struct file *filp)
{
	int err = sim_enter(&uvm_sim, SIM_OPEN, 0, 0);

	sim_leave(&uvm_sim, SIM_OPEN);
	return err;
}

static noinline int uvm_release_entry(struct inode *inode, struct file *filp)
{
	sim_enter(&uvm_sim, SIM_CLOSE, 0, 0);
	sim_leave(&uvm_sim, SIM_CLOSE);
	return 0;
}

static noinline int uvm_mmap_entry(struct file *filp, struct vm_area_struct *vma)
{
	int err = sim_enter(&uvm_sim, SIM_MMAP, 0, 0);

	vma->vm_ops = &uvm_vm_ops;
	sim_leave(&uvm_sim, SIM_MMAP);
	return err;
}

/*
 * The compiler splits the driver's function, and leaves the part under a name with a suffix. Whoever looks for the
 * function must not take the part.
 */
static long ioctl_part(struct file *filp, unsigned int cmd, unsigned long arg) asm("uvm_unlocked_ioctl_entry.part.0");
static noinline __used long ioctl_part(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return uvm_api_call(filp, cmd, (void __user *)arg);
}

static noinline long uvm_unlocked_ioctl_entry(struct file *filp, unsigned int cmd, unsigned long arg)
{
	long ret = sim_enter(&uvm_sim, SIM_IOCTL, 0, cmd);

	if (!ret)
		ret = ioctl_part(filp, cmd, arg);
	sim_leave(&uvm_sim, SIM_IOCTL);
	return ret;
}

static const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.open = uvm_open_entry,
	.release = uvm_release_entry,
	.unlocked_ioctl = uvm_unlocked_ioctl_entry,
	.mmap = uvm_mmap_entry,
};

int uvm_files_begin(void)
{
	int err = alloc_chrdev_region(&device, 0, 2, "nvidia-uvm");

	if (err)
		return err;
	cdev_init(&uvm_cdev, &uvm_fops);
	uvm_cdev.owner = THIS_MODULE;
	err = cdev_add(&uvm_cdev, device, 1);
	if (err)
		unregister_chrdev_region(device, 2);
	return err;
}

void uvm_files_end(void)
{
	cdev_del(&uvm_cdev);
	unregister_chrdev_region(device, 2);
}
