/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of the test double's `nvidia_uvm` share. Functions with the driver's names have its signatures. */
#ifndef NVIDIA_UVM_SIM_H
#define NVIDIA_UVM_SIM_H

#include <linux/mm.h>

#include "sim.h"

#ifndef SIM_BRANCH
#define SIM_BRANCH 580
#endif

/* Raw numbers, no size or type in them. */
#define UVM_INITIALIZE 0x30000001
#define UVM_DEINITIALIZE 0x30000002
#define UVM_REGISTER_GPU_VASPACE 25
#define UVM_REGISTER_CHANNEL 27
#define UVM_FREE 34
#define UVM_REGISTER_GPU 37
#define UVM_UNREGISTER_GPU 38
#define UVM_MIGRATE 51

/* Parameter blocks: what stands in between is of no use to the double. */
typedef struct {
	u64 flags;
	NV_STATUS rmStatus;
} UVM_INITIALIZE_PARAMS;

typedef struct {
	u8 gpu_uuid[16];
	u8 between[20];
	NV_STATUS rmStatus;
} UVM_REGISTER_GPU_PARAMS;

typedef struct {
	u8 gpu_uuid[16];
	NV_STATUS rmStatus;
} UVM_UNREGISTER_GPU_PARAMS;

typedef struct {
	u8 gpuUuid[16];
	u8 between[12];
	NV_STATUS rmStatus;
} UVM_REGISTER_GPU_VASPACE_PARAMS;

typedef struct {
	u8 gpuUuid[16];
	u8 between[32];
	NV_STATUS rmStatus;
} UVM_REGISTER_CHANNEL_PARAMS;

typedef struct {
	u64 base;
	u64 length;
	NV_STATUS rmStatus;
} UVM_FREE_PARAMS;

typedef struct {
	u64 base;
	u64 length;
	u8 destinationUuid[16];
	u8 between[40];
	NV_STATUS rmStatus;
} UVM_MIGRATE_PARAMS;

static_assert(offsetof(UVM_INITIALIZE_PARAMS, rmStatus) == 8);
static_assert(offsetof(UVM_REGISTER_GPU_PARAMS, rmStatus) == 36);
static_assert(offsetof(UVM_UNREGISTER_GPU_PARAMS, rmStatus) == 16);
static_assert(offsetof(UVM_REGISTER_GPU_VASPACE_PARAMS, rmStatus) == 28);
static_assert(offsetof(UVM_REGISTER_CHANNEL_PARAMS, rmStatus) == 48);
static_assert(offsetof(UVM_FREE_PARAMS, rmStatus) == 16);
static_assert(offsetof(UVM_MIGRATE_PARAMS, rmStatus) == 72);

extern struct sim uvm_sim;

/* nvidia-uvm-files.c */
int uvm_files_begin(void);
void uvm_files_end(void);

/* nvidia-uvm-api.c */
NV_STATUS uvm_api_register_gpu(UVM_REGISTER_GPU_PARAMS *params, struct file *filp);
NV_STATUS uvm_api_unregister_gpu(UVM_UNREGISTER_GPU_PARAMS *params, struct file *filp);
NV_STATUS uvm_api_register_gpu_va_space(UVM_REGISTER_GPU_VASPACE_PARAMS *params, struct file *filp);
NV_STATUS uvm_api_register_channel(UVM_REGISTER_CHANNEL_PARAMS *params, struct file *filp);
NV_STATUS uvm_api_free(UVM_FREE_PARAMS *params, struct file *filp);
NV_STATUS uvm_api_migrate(UVM_MIGRATE_PARAMS *params, struct file *filp);
long uvm_api_call(struct file *filp, unsigned int cmd, void __user *arg);

/* nvidia-uvm-faults.c */
typedef struct uvm_parent_gpu_t uvm_parent_gpu_t;
typedef struct uvm_va_block_t uvm_va_block_t;
typedef struct uvm_gpu_t uvm_gpu_t;
typedef struct uvm_gpu_chunk_t uvm_gpu_chunk_t;
typedef struct uvm_tracker_t uvm_tracker_t;

#if SIM_BRANCH < 560
#define uvm_parent_gpu_service_replayable_faults uvm_gpu_service_replayable_faults
#endif

extern const struct vm_operations_struct uvm_vm_ops;
void uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *parent_gpu);
NV_STATUS uvm_va_block_evict_chunks(uvm_va_block_t *va_block, uvm_gpu_t *gpu, uvm_gpu_chunk_t *root_chunk,
				    uvm_tracker_t *tracker);
int uvm_faults_begin(void);
void uvm_faults_end(void);
int uvm_faults_command(const char *line);

#endif
