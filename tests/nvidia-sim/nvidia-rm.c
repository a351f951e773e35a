// SPDX-License-Identifier: GPL-2.0
/*
 * The boundary of RM: one function for all escapes, with the kernel's copy of the parameter block.
 *
 * In: an escape and its block. Out: the block with RM's status in it; the function's own result says only whether the
 * block could be understood. RM's locks are taken as an escape needs them, and are held while a rule of kind "rm"
 * sleeps or hangs: so one call's victim is another's.
 */
#include "nvidia.h"

enum { RM_FREE = 0x29, RM_CONTROL = 0x2a, RM_ALLOC = 0x2b, RM_DUP_OBJECT = 0x34, RM_IDLE_CHANNELS = 0x41,
	RM_VID_HEAP_CONTROL = 0x4a, RM_ACCESS_REGISTRY = 0x4d, RM_MAP_MEMORY = 0x4e, RM_MAP_MEMORY_DMA = 0x57 };

/* Where a block has its code and its status; see the README for the structures. -1: it has none. */
static void layout(u32 cmd, u32 size, int *code, int *status)
{
	*code = -1;
	switch (cmd) {
	case RM_CONTROL:
		*code = 8;
		*status = 28;
		break;
	case RM_ALLOC:
		*code = 12;
		*status = size >= 48 ? 40 : 28;
		break;
	case RM_FREE:
		*status = 12;
		break;
	case RM_DUP_OBJECT:
		*status = 24;
		break;
	case RM_IDLE_CHANNELS:
		*status = 48;
		break;
	case RM_VID_HEAP_CONTROL:
		*status = 20;
		break;
	case RM_MAP_MEMORY:
		*status = 40;
		break;
	case RM_MAP_MEMORY_DMA:
		*status = 56;
		break;
	default:
		*status = -1;
	}
}

static void lock(u32 cmd)
{
	switch (cmd) {
	case RM_FREE:
	case RM_ALLOC:
	case RM_DUP_OBJECT:
	case RM_ACCESS_REGISTRY:
		os_acquire_rwlock_write(&nv_api_lock);
		break;
	case RM_VID_HEAP_CONTROL:
	case RM_MAP_MEMORY:
	case RM_MAP_MEMORY_DMA:
		os_acquire_rwlock_read(&nv_api_lock);
		nv_gpu_lock_acquire();
		break;
	case RM_CONTROL:
		os_acquire_rwlock_read(&nv_api_lock);
		break;
	case RM_IDLE_CHANNELS:
		os_acquire_mutex(&nv_rm_mutex);
	}
}

static void unlock(u32 cmd)
{
	switch (cmd) {
	case RM_FREE:
	case RM_ALLOC:
	case RM_DUP_OBJECT:
	case RM_ACCESS_REGISTRY:
		os_release_rwlock_write(&nv_api_lock);
		break;
	case RM_VID_HEAP_CONTROL:
	case RM_MAP_MEMORY:
	case RM_MAP_MEMORY_DMA:
		nv_gpu_lock_release();
		os_release_rwlock_read(&nv_api_lock);
		break;
	case RM_CONTROL:
		os_release_rwlock_read(&nv_api_lock);
		break;
	case RM_IDLE_CHANNELS:
		os_release_mutex(&nv_rm_mutex);
	}
}

noinline NV_STATUS rm_ioctl(nvidia_stack_t *sp, nv_state_t *nv, nv_file_private_t *nvfp, u32 cmd, void *data,
			    u32 size)
{
	int code_at, status_at, ret;
	u32 code = 0;

	layout(cmd, size, &code_at, &status_at);
	if (status_at >= 0 && size < status_at + sizeof(u32)) {
		sim_enter(&nvidia_sim, SIM_RM, nv->minor, cmd);
		sim_leave(&nvidia_sim, SIM_RM);
		return NV_ERR_INVALID_ARGUMENT;
	}
	if (code_at >= 0)
		code = *(u32 *)(data + code_at);
	lock(cmd);
	ret = sim_enter(&nvidia_sim, SIM_RM, nv->minor, cmd);
	unlock(cmd);
	if (status_at >= 0)
		*(u32 *)(data + status_at) = sim_status(&nvidia_sim, cmd, code);
	sim_leave(&nvidia_sim, SIM_RM);
	return ret ? NV_ERR_INVALID_ARGUMENT : NV_OK;
}

noinline u8 rm_init_adapter(nvidia_stack_t *sp, nv_state_t *nv)
{
	int ret = sim_enter(&nvidia_sim, SIM_INIT, nv->minor, 0);

	if (ret) {
		printk(KERN_ERR "NVRM: GPU %s: RmInitAdapter failed! (0x62:0x40:2477)\n", pci_name(nv->pci));
		printk(KERN_ERR "NVRM: GPU %s: rm_init_adapter failed, device minor number %u\n",
		       pci_name(nv->pci), nv->minor);
	}
	sim_leave(&nvidia_sim, SIM_INIT);
	return !ret;
}

noinline void rm_shutdown_adapter(nvidia_stack_t *sp, nv_state_t *nv)
{
	/* kept by the compiler although it does nothing */
	barrier();
}
