/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of the test double's `nvidia` share. Functions with the driver's names have its signatures. */
#ifndef NVIDIA_SIM_H
#define NVIDIA_SIM_H

#include <linux/pci.h>
#include <linux/poll.h>
#include <linux/rwsem.h>
#include <linux/semaphore.h>

#include "sim.h"

#ifndef SIM_BRANCH
#define SIM_BRANCH 580
#endif

#define NV_MAJOR 195
#define NV_MINOR_CTL 255
#define NV_GPUS_MAX 8

/* Numbers that the OS layer answers itself; all others reach rm_ioctl. */
#define NV_ESC_CARD_INFO 0xc8
#define NV_ESC_CHECK_VERSION_STR 0xd2
#define NV_ESC_IOCTL_XFER_CMD 0xd3
#define NV_ESC_WAIT_OPEN_COMPLETE 0xda

/* A device. */
typedef struct nv_state_t {
	unsigned int minor;
	struct semaphore ldata_lock;
	int users;
	struct pci_dev *pci;	/* made up: only its name is ever looked at; NULL for nvidiactl */
} nv_state_t;

/* An open file. */
typedef struct nv_file_private_t {
	nv_state_t *nv;
	wait_queue_head_t events;
} nv_file_private_t;

/* RM's private stack; the double has none. */
typedef struct nvidia_stack_t nvidia_stack_t;

extern struct sim nvidia_sim;
extern int gpus;
extern nv_state_t nv_states[NV_GPUS_MAX];
extern nv_state_t nv_ctl;

/* nvidia-files.c */
int nv_files_begin(void);
void nv_files_end(void);
int nvidia_mmap(struct file *file, struct vm_area_struct *vma);

/* nvidia-rm.c */
NV_STATUS rm_ioctl(nvidia_stack_t *sp, nv_state_t *nv, nv_file_private_t *nvfp, u32 cmd, void *data, u32 size);
u8 rm_init_adapter(nvidia_stack_t *sp, nv_state_t *nv);
void rm_shutdown_adapter(nvidia_stack_t *sp, nv_state_t *nv);

/* nvidia-locks.c */
NV_STATUS os_acquire_mutex(void *mutex);
NV_STATUS os_cond_acquire_mutex(void *mutex);
void os_release_mutex(void *mutex);
NV_STATUS os_acquire_semaphore(void *semaphore);
NV_STATUS os_cond_acquire_semaphore(void *semaphore);
NV_STATUS os_release_semaphore(void *semaphore);
NV_STATUS os_acquire_rwlock_read(void *lock);
NV_STATUS os_acquire_rwlock_write(void *lock);
NV_STATUS os_cond_acquire_rwlock_read(void *lock);
NV_STATUS os_cond_acquire_rwlock_write(void *lock);
void os_release_rwlock_read(void *lock);
void os_release_rwlock_write(void *lock);
int nv_locks_begin(void);
void nv_locks_end(void);
/* lock NAME MODE MS [WHO] */
int nv_locks_command(const char *line);

/* RM's locks. */
extern struct rw_semaphore nv_api_lock;
extern struct semaphore nv_rm_mutex;
void nv_gpu_lock_acquire(void);
void nv_gpu_lock_release(void);

/* nvidia-power.c */
typedef enum { NV_POWER_STATE_IN_HIBERNATE, NV_POWER_STATE_IN_STANDBY, NV_POWER_STATE_RUNNING } nv_power_state_t;
typedef enum { NV_PM_ACTION_DEPTH_DEFAULT, NV_PM_ACTION_DEPTH_MODESET, NV_PM_ACTION_DEPTH_UVM } nv_pm_action_depth_t;
NV_STATUS nv_set_system_power_state(nv_power_state_t state, nv_pm_action_depth_t depth);
int nv_power_lock(void);
void nv_power_unlock(void);
int nv_power_command(const char *line);

/* nvidia-report.c */
void nv_report_error(struct pci_dev *dev, u32 error_number, const char *format, va_list ap);
/* xid PCI CODE TEXT, or xid_unlogged … */
int nv_report_command(char *line);
struct pci_dev *nv_pci_new(const char *name);
void nv_pci_free(struct pci_dev *pci);

#endif
