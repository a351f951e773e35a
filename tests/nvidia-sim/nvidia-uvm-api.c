// SPDX-License-Identifier: GPL-2.0
/*
 * UVM's calls: one function each, with the kernel's copy of the parameters.
 *
 * In: a raw number and a block. Out: the block with UVM's status in it; the system call returns 0 whatever that is.
 */
#include <linux/uaccess.h>

#include "nvidia-uvm.h"

static NV_STATUS answer(unsigned int cmd)
{
	NV_STATUS status = sim_status(&uvm_sim, cmd, 0);

	if (sim_enter(&uvm_sim, SIM_API, 0, cmd))
		status = NV_ERR_INVALID_ARGUMENT;
	sim_leave(&uvm_sim, SIM_API);
	return status;
}

noinline NV_STATUS uvm_api_register_gpu(UVM_REGISTER_GPU_PARAMS *params, struct file *filp)
{
	return answer(UVM_REGISTER_GPU);
}

noinline NV_STATUS uvm_api_unregister_gpu(UVM_UNREGISTER_GPU_PARAMS *params, struct file *filp)
{
	return answer(UVM_UNREGISTER_GPU);
}

noinline NV_STATUS uvm_api_register_gpu_va_space(UVM_REGISTER_GPU_VASPACE_PARAMS *params, struct file *filp)
{
	return answer(UVM_REGISTER_GPU_VASPACE);
}

noinline NV_STATUS uvm_api_register_channel(UVM_REGISTER_CHANNEL_PARAMS *params, struct file *filp)
{
	return answer(UVM_REGISTER_CHANNEL);
}

noinline NV_STATUS uvm_api_free(UVM_FREE_PARAMS *params, struct file *filp)
{
	return answer(UVM_FREE);
}

/* The GPU's memory is always full here: what comes in drives something out, in the caller. */
noinline NV_STATUS uvm_api_migrate(UVM_MIGRATE_PARAMS *params, struct file *filp)
{
	NV_STATUS status = uvm_va_block_evict_chunks(NULL, NULL, NULL, NULL);

	return status == NV_OK ? answer(UVM_MIGRATE) : status;
}

#define CALL(type, function)                                                   \
	do {                                                                   \
		type params;                                                   \
		if (copy_from_user(&params, arg, sizeof(params)))              \
			return -EFAULT;                                        \
		params.rmStatus = function(&params, filp);                     \
		return copy_to_user(arg, &params, sizeof(params)) ? -EFAULT : 0; \
	} while (0)

static NV_STATUS initialize(UVM_INITIALIZE_PARAMS *params, struct file *filp)
{
	return answer(UVM_INITIALIZE);
}

long uvm_api_call(struct file *filp, unsigned int cmd, void __user *arg)
{
	switch (cmd) {
	case UVM_INITIALIZE:
		CALL(UVM_INITIALIZE_PARAMS, initialize);
	case UVM_DEINITIALIZE:
		return 0;
	case UVM_REGISTER_GPU:
		CALL(UVM_REGISTER_GPU_PARAMS, uvm_api_register_gpu);
	case UVM_UNREGISTER_GPU:
		CALL(UVM_UNREGISTER_GPU_PARAMS, uvm_api_unregister_gpu);
	case UVM_REGISTER_GPU_VASPACE:
		CALL(UVM_REGISTER_GPU_VASPACE_PARAMS, uvm_api_register_gpu_va_space);
	case UVM_REGISTER_CHANNEL:
		CALL(UVM_REGISTER_CHANNEL_PARAMS, uvm_api_register_channel);
	case UVM_FREE:
		CALL(UVM_FREE_PARAMS, uvm_api_free);
	case UVM_MIGRATE:
		CALL(UVM_MIGRATE_PARAMS, uvm_api_migrate);
	default:
		return -EINVAL;
	}
}
