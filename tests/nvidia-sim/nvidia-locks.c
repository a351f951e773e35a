// SPDX-License-Identifier: GPL-2.0
/*
 * RM's locks, under the driver's names, and a command that holds one.
 *
 * In: a lock's address. Out: the lock is had. As in the driver:
 * - a semaphore's acquire is a jump into the mutex's: a probe on each sees one wait twice;
 * - a GPU's lock is a count under a spinlock. Its semaphore begins at 0 and only wakes who waits: a thread that finds the
 *   GPU free touches it neither on the way in nor, if nobody waits by then, on the way out;
 * - a try of a reader-writer lock answers the opposite of what it did. Nothing here calls one: its caller would go on
 *   without the lock, or never let go of it.
 */
#include "nvidia.h"

DECLARE_RWSEM(nv_api_lock);
struct semaphore nv_rm_mutex = __SEMAPHORE_INITIALIZER(nv_rm_mutex, 1);

/* The lock of a GPU; all GPUs of the double have one. */
static struct {
	spinlock_t spinlock;
	int count;		/* 1: free; 0: had; below: how many wait */
	bool running;		/* somebody has it */
	bool signaled;		/* somebody was woken for it, and does not run yet */
	struct semaphore wait;
} gpu_lock = {
	.spinlock = __SPIN_LOCK_UNLOCKED(gpu_lock.spinlock),
	.count = 1,
	.wait = __SEMAPHORE_INITIALIZER(gpu_lock.wait, 0),
};

enum { LOCK_API, LOCK_GPU, LOCK_MUTEX, LOCKS };
enum { MODE_READ, MODE_WRITE, MODE_MUTEX, MODE_SEMAPHORE };

/* a thread for each lock: two locks may be held at once */
static struct kthread_worker *holders[LOCKS];

static bool may_sleep(void)
{
	return !irqs_disabled() && !in_interrupt() && !in_atomic();
}

noinline NV_STATUS os_acquire_mutex(void *mutex)
{
	if (!may_sleep())
		return NV_ERR_INVALID_REQUEST;
	down(mutex);
	return NV_OK;
}

noinline NV_STATUS os_cond_acquire_mutex(void *mutex)
{
	if (!may_sleep())
		return NV_ERR_INVALID_REQUEST;
	return down_trylock(mutex) ? NV_ERR_TIMEOUT_RETRY : NV_OK;
}

noinline void os_release_mutex(void *mutex)
{
	up(mutex);
}

noinline NV_STATUS os_acquire_semaphore(void *semaphore)
{
	return os_acquire_mutex(semaphore);
}

noinline NV_STATUS os_cond_acquire_semaphore(void *semaphore)
{
	return down_trylock(semaphore) ? NV_ERR_TIMEOUT_RETRY : NV_OK;
}

noinline NV_STATUS os_release_semaphore(void *semaphore)
{
	up(semaphore);
	return NV_OK;
}

noinline NV_STATUS os_acquire_rwlock_read(void *lock)
{
	if (!may_sleep())
		return NV_ERR_INVALID_REQUEST;
	down_read(lock);
	return NV_OK;
}

noinline NV_STATUS os_acquire_rwlock_write(void *lock)
{
	if (!may_sleep())
		return NV_ERR_INVALID_REQUEST;
	down_write(lock);
	return NV_OK;
}

noinline NV_STATUS os_cond_acquire_rwlock_read(void *lock)
{
	return down_read_trylock(lock) ? NV_ERR_TIMEOUT_RETRY : NV_OK;
}

noinline NV_STATUS os_cond_acquire_rwlock_write(void *lock)
{
	return down_write_trylock(lock) ? NV_ERR_TIMEOUT_RETRY : NV_OK;
}

noinline void os_release_rwlock_read(void *lock)
{
	up_read(lock);
}

noinline void os_release_rwlock_write(void *lock)
{
	up_write(lock);
}

void nv_gpu_lock_acquire(void)
{
	spin_lock(&gpu_lock.spinlock);
	if (gpu_lock.count-- <= 0) {
		do {
			spin_unlock(&gpu_lock.spinlock);
			os_acquire_semaphore(&gpu_lock.wait);
			spin_lock(&gpu_lock.spinlock);
			gpu_lock.signaled = false;
		} while (gpu_lock.running);
	}
	gpu_lock.running = true;
	spin_unlock(&gpu_lock.spinlock);
}

void nv_gpu_lock_release(void)
{
	bool wake;

	spin_lock(&gpu_lock.spinlock);
	wake = gpu_lock.count < 0 && !gpu_lock.signaled;
	if (wake)
		gpu_lock.signaled = true;
	gpu_lock.running = false;
	gpu_lock.count++;
	spin_unlock(&gpu_lock.spinlock);
	if (wake)
		os_release_semaphore(&gpu_lock.wait);
}

static void acquire(int mode)
{
	switch (mode) {
	case MODE_READ:
		os_acquire_rwlock_read(&nv_api_lock);
		break;
	case MODE_WRITE:
		os_acquire_rwlock_write(&nv_api_lock);
		break;
	case MODE_MUTEX:
		os_acquire_mutex(&nv_rm_mutex);
		break;
	default:
		nv_gpu_lock_acquire();
	}
}

static void release(int mode)
{
	switch (mode) {
	case MODE_READ:
		os_release_rwlock_read(&nv_api_lock);
		break;
	case MODE_WRITE:
		os_release_rwlock_write(&nv_api_lock);
		break;
	case MODE_MUTEX:
		os_release_mutex(&nv_rm_mutex);
		break;
	default:
		nv_gpu_lock_release();
	}
}

static void hold(struct sim_job *job)
{
	acquire(job->mode);
	sim_job_begun(job);
	sim_hold(&nvidia_sim, job->ms);
	release(job->mode);
}

/* the mutex was taken by another thread */
static void hand_back(struct sim_job *job)
{
	sim_job_begun(job);
	sim_hold(&nvidia_sim, job->ms);
	release(job->mode);
}

int nv_locks_command(const char *line)
{
	char name[8], mode_name[12], who[12] = "thread";
	unsigned int ms;
	int lock, mode;

	if (sscanf(line, "lock %7s %11s %u %11s", name, mode_name, &ms, who) < 3)
		return -EINVAL;
	if (!strcmp(name, "api") && !strcmp(mode_name, "read")) {
		lock = LOCK_API;
		mode = MODE_READ;
	} else if (!strcmp(name, "api") && !strcmp(mode_name, "write")) {
		lock = LOCK_API;
		mode = MODE_WRITE;
	} else if (!strcmp(name, "mutex") && !strcmp(mode_name, "mutex")) {
		lock = LOCK_MUTEX;
		mode = MODE_MUTEX;
	} else if (!strcmp(name, "gpu") && !strcmp(mode_name, "semaphore")) {
		lock = LOCK_GPU;
		mode = MODE_SEMAPHORE;
	} else {
		return -EINVAL;
	}
	if (!strcmp(who, "thread"))
		return sim_run(holders[lock], hold, mode, ms);
	if (!strcmp(who, "caller")) {
		acquire(mode);
		sim_hold(&nvidia_sim, ms);
		release(mode);
		return 0;
	}
	if (!strcmp(who, "handover") && lock == LOCK_MUTEX) {
		acquire(mode);
		return sim_run(holders[lock], hand_back, mode, ms);
	}
	return -EINVAL;
}

int nv_locks_begin(void)
{
	int i;

	for (i = 0; i < LOCKS; i++) {
		holders[i] = sim_worker("nv_queue");
		if (IS_ERR(holders[i])) {
			int err = PTR_ERR(holders[i]);

			holders[i] = NULL;
			nv_locks_end();
			return err;
		}
	}
	return 0;
}

void nv_locks_end(void)
{
	int i;

	for (i = 0; i < LOCKS; i++) {
		if (holders[i])
			kthread_destroy_worker(holders[i]);
		holders[i] = NULL;
	}
}
