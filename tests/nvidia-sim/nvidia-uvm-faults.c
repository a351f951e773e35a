// SPDX-License-Identifier: GPL-2.0
/*
 * Faults: the CPU's in the thread that has them, the GPU's in a kernel thread; and evictions, in either.
 *
 * In: a touched page; "service MS", "evict MS [caller]". Out: a page of zeros; the functions under the driver's names,
 * as long as told.
 */
#include <linux/delay.h>

#include "nvidia-uvm.h"

static struct kthread_worker *bottom_half;

static noinline vm_fault_t uvm_vm_fault_entry(struct vm_fault *vmf)
{
	vm_fault_t ret = 0;

	if (sim_enter(&uvm_sim, SIM_FAULT, 0, 0)) {
		ret = VM_FAULT_SIGBUS;
	} else {
		vmf->page = alloc_page(GFP_USER | __GFP_ZERO);
		if (!vmf->page)
			ret = VM_FAULT_OOM;
	}
	sim_leave(&uvm_sim, SIM_FAULT);
	return ret;
}

const struct vm_operations_struct uvm_vm_ops = {
	.fault = uvm_vm_fault_entry,
};

noinline void uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *parent_gpu)
{
	struct sim_job *job = (struct sim_job *)parent_gpu;

	sim_enter(&uvm_sim, SIM_SERVICE, 0, 0);
	sim_job_begun(job);
	sim_hold(&uvm_sim, job->ms);
	sim_leave(&uvm_sim, SIM_SERVICE);
}

noinline NV_STATUS uvm_va_block_evict_chunks(uvm_va_block_t *va_block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *root_chunk,
					     uvm_tracker_t *tracker)
{
	struct sim_job *job = (struct sim_job *)va_block;

	sim_enter(&uvm_sim, SIM_EVICT, 0, 0);
	if (job) {
		sim_job_begun(job);
		sim_hold(&uvm_sim, job->ms);
	}
	sim_leave(&uvm_sim, SIM_EVICT);
	return NV_OK;
}

static void service(struct sim_job *job)
{
	uvm_parent_gpu_service_replayable_faults((uvm_parent_gpu_t *)job);
}

static void evict(struct sim_job *job)
{
	uvm_va_block_evict_chunks((uvm_va_block_t *)job, NULL, NULL, NULL);
}

int uvm_faults_command(const char *line)
{
	unsigned int ms;

	if (sscanf(line, "service %u", &ms) == 1)
		return sim_run(bottom_half, service, 0, ms);
	if (sscanf(line, "evict %u", &ms) == 1)
		return sim_run(bottom_half, evict, 0, ms);
	return -EINVAL;
}

int uvm_faults_begin(void)
{
	bottom_half = sim_worker("UVM GPU1 BH");
	return PTR_ERR_OR_ZERO(bottom_half);
}

void uvm_faults_end(void)
{
	kthread_destroy_worker(bottom_half);
}
