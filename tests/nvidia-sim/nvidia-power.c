// SPDX-License-Identifier: GPL-2.0
/*
 * The system power lock: read by every call, written from suspend to resume.
 *
 * In: "power running|standby|hibernate". Out: calls that wait for the resume. The wait can be interrupted, as in the
 * driver.
 */
#include <linux/delay.h>
#include <linux/sched/signal.h>

#include "nvidia.h"

static DECLARE_RWSEM(nv_system_pm_lock);
static DEFINE_MUTEX(state_lock);
static nv_power_state_t power_state = NV_POWER_STATE_RUNNING;

int nv_power_lock(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 11, 0)
	return down_read_interruptible(&nv_system_pm_lock);
#else
	while (!down_read_trylock(&nv_system_pm_lock)) {
		if (signal_pending(current))
			return -EINTR;
		msleep_interruptible(10);
	}
	return 0;
#endif
}

void nv_power_unlock(void)
{
	up_read(&nv_system_pm_lock);
}

noinline NV_STATUS nv_set_system_power_state(nv_power_state_t state, nv_pm_action_depth_t depth)
{
	bool was_running, is_running = state == NV_POWER_STATE_RUNNING;

	mutex_lock(&state_lock);
	was_running = power_state == NV_POWER_STATE_RUNNING;
	power_state = state;
	if (was_running && !is_running)
		down_write(&nv_system_pm_lock);
	else if (!was_running && is_running)
		up_write(&nv_system_pm_lock);
	mutex_unlock(&state_lock);
	return NV_OK;
}

int nv_power_command(const char *line)
{
	nv_power_state_t state;

	if (!strcmp(line, "power running"))
		state = NV_POWER_STATE_RUNNING;
	else if (!strcmp(line, "power standby"))
		state = NV_POWER_STATE_IN_STANDBY;
	else if (!strcmp(line, "power hibernate"))
		state = NV_POWER_STATE_IN_HIBERNATE;
	else
		return -EINVAL;
	nv_set_system_power_state(state, NV_PM_ACTION_DEPTH_DEFAULT);
	return 0;
}
