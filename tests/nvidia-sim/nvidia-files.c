// SPDX-License-Identifier: GPL-2.0
/*
 * The device files: major 195, minors of GPUs and 255.
 *
 * In: system calls. Out: the driver's own functions are called, and behave as the rules say. Before branch 545 there
 * was a layer of nvidia_frontend_* functions above them.
 */
#include <linux/cdev.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "nvidia.h"

/* The largest block that the driver takes. */
#define NV_IOCTL_SIZE_MAX 16384

static struct cdev nv_cdev;
static struct cdev nv_ctl_cdev;

/* What IOCTL_XFER_CMD points to. */
struct xfer {
	u32 cmd;
	u32 size;
	u64 ptr;
};

static bool is_of_os_layer(u32 nr)
{
	return nr == NV_ESC_CARD_INFO || nr == NV_ESC_CHECK_VERSION_STR || (nr >= 0xd4 && nr <= NV_ESC_WAIT_OPEN_COMPLETE);
}

/* In 545 and later the compiler draws this into its one caller. */
static __always_inline long ioctl_inner(struct file *file, unsigned int cmd, unsigned long arg)
{
	nv_file_private_t *nvfp = file->private_data;
	void __user *from = (void __user *)arg;
	u32 nr = _IOC_NR(cmd), size = _IOC_SIZE(cmd);
	struct xfer xfer;
	void *block;
	long ret = 0;

	if (nr == NV_ESC_IOCTL_XFER_CMD) {
		if (size != sizeof(xfer))
			return -EINVAL;
		if (copy_from_user(&xfer, from, sizeof(xfer)))
			return -EFAULT;
		nr = xfer.cmd;
		size = xfer.size;
		from = u64_to_user_ptr(xfer.ptr);
	}
	if (size > NV_IOCTL_SIZE_MAX)
		return -EINVAL;
	block = kzalloc(size, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	if (copy_from_user(block, from, size))
		ret = -EFAULT;
	else if (!is_of_os_layer(nr))
		ret = rm_ioctl(NULL, nvfp->nv, nvfp, nr, block, size) == NV_OK ? 0 : -EINVAL;
	if (!ret && copy_to_user(from, block, size))
		ret = -EFAULT;
	kfree(block);
	return ret;
}

static __always_inline long ioctl_ruled(struct file *file, unsigned int cmd, unsigned long arg)
{
	nv_file_private_t *nvfp = file->private_data;
	long ret = sim_enter(&nvidia_sim, SIM_IOCTL, nvfp->nv->minor, _IOC_NR(cmd));

	if (!ret)
		ret = nv_power_lock();
	if (!ret) {
		ret = ioctl_inner(file, cmd, arg);
		nv_power_unlock();
	}
	sim_leave(&nvidia_sim, SIM_IOCTL);
	return ret;
}

/* The first user of a GPU brings it up. */
static int start(nv_state_t *nv)
{
	int err = 0;

	down(&nv->ldata_lock);
	if (!nv->users && !rm_init_adapter(NULL, nv))
		err = -EIO;
	else
		nv->users++;
	up(&nv->ldata_lock);
	return err;
}

static void stop(nv_state_t *nv)
{
	down(&nv->ldata_lock);
	if (!--nv->users)
		rm_shutdown_adapter(NULL, nv);
	up(&nv->ldata_lock);
}

static noinline int nvidia_open(struct inode *inode, struct file *file)
{
	unsigned int minor = iminor(inode);
	nv_file_private_t *nvfp = NULL;
	int err = sim_enter(&nvidia_sim, SIM_OPEN, minor, 0);

	if (!err && minor != NV_MINOR_CTL && minor >= gpus)
		err = -ENODEV;
	if (!err)
		err = nv_power_lock();
	if (!err) {
		nvfp = kzalloc(sizeof(*nvfp), GFP_KERNEL);
		if (!nvfp) {
			err = -ENOMEM;
		} else {
			init_waitqueue_head(&nvfp->events);
			nvfp->nv = minor == NV_MINOR_CTL ? &nv_ctl : &nv_states[minor];
			if (minor != NV_MINOR_CTL)
				err = start(nvfp->nv);
			file->private_data = nvfp;
		}
		if (err)
			kfree(nvfp);
		nv_power_unlock();
	}
	sim_leave(&nvidia_sim, SIM_OPEN);
	return err;
}

static noinline int nvidia_close(struct inode *inode, struct file *file)
{
	nv_file_private_t *nvfp = file->private_data;

	sim_enter(&nvidia_sim, SIM_CLOSE, nvfp->nv->minor, 0);
	if (nvfp->nv != &nv_ctl)
		stop(nvfp->nv);
	kfree(nvfp);
	sim_leave(&nvidia_sim, SIM_CLOSE);
	return 0;
}

static noinline __poll_t nvidia_poll(struct file *file, poll_table *wait)
{
	nv_file_private_t *nvfp = file->private_data;
	__poll_t mask = 0;

	/* no event ever comes: the caller waits in the kernel's own poll, as it does with the driver */
	poll_wait(file, &nvfp->events, wait);
	if (sim_enter(&nvidia_sim, SIM_POLL, nvfp->nv->minor, 0))
		mask = EPOLLHUP;
	sim_leave(&nvidia_sim, SIM_POLL);
	return mask;
}

static noinline vm_fault_t nvidia_fault(struct vm_fault *vmf)
{
	vmf->page = alloc_page(GFP_USER | __GFP_ZERO);
	return vmf->page ? 0 : VM_FAULT_OOM;
}

static const struct vm_operations_struct nv_vm_ops = {
	.fault = nvidia_fault,
};

noinline int nvidia_mmap(struct file *file, struct vm_area_struct *vma)
{
	nv_file_private_t *nvfp = file->private_data;
	int err = sim_enter(&nvidia_sim, SIM_MMAP, nvfp->nv->minor, 0);

	vma->vm_ops = &nv_vm_ops;
	sim_leave(&nvidia_sim, SIM_MMAP);
	return err;
}

#if SIM_BRANCH >= 545
static noinline long nvidia_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return ioctl_ruled(file, cmd, arg);
}

static const struct file_operations nv_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_close,
	.unlocked_ioctl = nvidia_unlocked_ioctl,
	.poll = nvidia_poll,
	.mmap = nvidia_mmap,
};
#else
int nvidia_frontend_open(struct inode *inode, struct file *file);
int nvidia_frontend_close(struct inode *inode, struct file *file);
long nvidia_frontend_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
__poll_t nvidia_frontend_poll(struct file *file, poll_table *wait);
int nvidia_frontend_mmap(struct file *file, struct vm_area_struct *vma);

static noinline int nvidia_ioctl(struct inode *inode, struct file *file, unsigned int cmd, unsigned long arg)
{
	return ioctl_ruled(file, cmd, arg);
}

/* The layer below is reached by pointers, as in the driver: so its functions keep their names and arguments. */
struct layer_below {
	int (*open)(struct inode *inode, struct file *file);
	int (*close)(struct inode *inode, struct file *file);
	int (*ioctl)(struct inode *inode, struct file *file, unsigned int cmd, unsigned long arg);
	__poll_t (*poll)(struct file *file, poll_table *wait);
	int (*mmap)(struct file *file, struct vm_area_struct *vma);
};

extern struct layer_below nv_layer_below;
struct layer_below nv_layer_below = {
	.open = nvidia_open,
	.close = nvidia_close,
	.ioctl = nvidia_ioctl,
	.poll = nvidia_poll,
	.mmap = nvidia_mmap,
};

noinline int nvidia_frontend_open(struct inode *inode, struct file *file)
{
	return nv_layer_below.open(inode, file);
}

noinline int nvidia_frontend_close(struct inode *inode, struct file *file)
{
	return nv_layer_below.close(inode, file);
}

noinline long nvidia_frontend_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return nv_layer_below.ioctl(file_inode(file), file, cmd, arg);
}

noinline __poll_t nvidia_frontend_poll(struct file *file, poll_table *wait)
{
	return nv_layer_below.poll(file, wait);
}

noinline int nvidia_frontend_mmap(struct file *file, struct vm_area_struct *vma)
{
	return nv_layer_below.mmap(file, vma);
}

static const struct file_operations nv_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_frontend_open,
	.release = nvidia_frontend_close,
	.unlocked_ioctl = nvidia_frontend_unlocked_ioctl,
	.poll = nvidia_frontend_poll,
	.mmap = nvidia_frontend_mmap,
};
#endif

/* The regions as /proc/devices shows them: one before 545, then one for the GPUs and one for nvidiactl. */
static int regions(void)
{
#if SIM_BRANCH >= 545
	int err = register_chrdev_region(MKDEV(NV_MAJOR, 0), 248, "nvidia");

	if (err)
		return err;
	err = register_chrdev_region(MKDEV(NV_MAJOR, NV_MINOR_CTL), 1, "nvidiactl");
	if (err)
		unregister_chrdev_region(MKDEV(NV_MAJOR, 0), 248);
	return err;
#else
	return register_chrdev_region(MKDEV(NV_MAJOR, 0), 256, "nvidia-frontend");
#endif
}

static void no_regions(void)
{
#if SIM_BRANCH >= 545
	unregister_chrdev_region(MKDEV(NV_MAJOR, NV_MINOR_CTL), 1);
	unregister_chrdev_region(MKDEV(NV_MAJOR, 0), 248);
#else
	unregister_chrdev_region(MKDEV(NV_MAJOR, 0), 256);
#endif
}

int nv_files_begin(void)
{
	int err = regions();

	if (err)
		return err;
	cdev_init(&nv_cdev, &nv_fops);
	nv_cdev.owner = THIS_MODULE;
	err = cdev_add(&nv_cdev, MKDEV(NV_MAJOR, 0), 248);
	if (err)
		goto out;
	cdev_init(&nv_ctl_cdev, &nv_fops);
	nv_ctl_cdev.owner = THIS_MODULE;
	err = cdev_add(&nv_ctl_cdev, MKDEV(NV_MAJOR, NV_MINOR_CTL), 1);
	if (!err)
		return 0;
	cdev_del(&nv_cdev);
out:
	no_regions();
	return err;
}

void nv_files_end(void)
{
	cdev_del(&nv_ctl_cdev);
	cdev_del(&nv_cdev);
	no_regions();
}
