// SPDX-License-Identifier: GPL-2.0
/*
 * Rules, counts and the control file, for both modules.
 *
 * In: one command a write. Out: calls that sleep, spin, hang or fail as told. What can go wrong: an unknown command
 * (EINVAL), more rules than there is room for (ENOSPC).
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "sim.h"

static const char *const kinds[SIM_KINDS] = {
	"ioctl", "open", "close", "mmap", "poll", "fault", "rm", "init", "api", "service", "evict",
};
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 17, 0)
#define pde_data PDE_DATA
#endif

static const char *const acts[] = { "none", "sleep", "spin", "hang", "hangk", "fail" };

static bool take(bool counted, unsigned int *left)
{
	if (!counted)
		return true;
	if (!*left)
		return false;
	(*left)--;
	return true;
}

static struct sim_rule find(struct sim *sim, enum sim_kind kind, long minor, long nr, int *releases)
{
	struct sim_rule found = { .act = SIM_NONE };
	int i;

	spin_lock(&sim->lock);
	/* under the lock: who releases after it has cleared the rules must not miss a call that found one */
	*releases = atomic_read(&sim->releases);
	for (i = 0; i < sim->rule_count; i++) {
		struct sim_rule *rule = &sim->rules[i];

		if (rule->kind != kind || (rule->minor != -1 && rule->minor != minor) ||
		    (rule->nr != -1 && rule->nr != nr) || !take(rule->counted, &rule->left))
			continue;
		found = *rule;
		break;
	}
	spin_unlock(&sim->lock);
	return found;
}

static void spin_for(unsigned int ms)
{
	ktime_t end = ktime_add_ms(ktime_get(), ms);

	while (ktime_before(ktime_get(), end) && !fatal_signal_pending(current)) {
		cpu_relax();
		cond_resched();
	}
}

int sim_enter(struct sim *sim, enum sim_kind kind, long minor, long nr)
{
	int releases, ret = 0;
	struct sim_rule rule;

	atomic64_inc(&sim->begun[kind]);
	/* no lock to wait for where nothing is asked for: benchmarks measure this path */
	if (!READ_ONCE(sim->rule_count))
		return 0;
	rule = find(sim, kind, minor, nr, &releases);
	switch (rule.act) {
	case SIM_NONE:
		return 0;
	case SIM_FAIL:
		break;
	case SIM_SLEEP:
		msleep(rule.ms);
		break;
	case SIM_SPIN:
		spin_for(rule.ms);
		break;
	case SIM_HANG:
		atomic_inc(&sim->hanging);
		wait_event(sim->hung, atomic_read(&sim->releases) != releases);
		atomic_dec(&sim->hanging);
		break;
	case SIM_HANGK:
		atomic_inc(&sim->hanging);
		ret = wait_event_killable(sim->hung, atomic_read(&sim->releases) != releases);
		atomic_dec(&sim->hanging);
		break;
	}
	return ret ? ret : rule.ret;
}
EXPORT_SYMBOL_GPL(sim_enter);

void sim_leave(struct sim *sim, enum sim_kind kind)
{
	atomic64_inc(&sim->ended[kind]);
}
EXPORT_SYMBOL_GPL(sim_leave);

u32 sim_status(struct sim *sim, long nr, long code)
{
	u32 status = NV_OK;
	int i;

	spin_lock(&sim->lock);
	for (i = 0; i < sim->answer_count; i++) {
		struct sim_answer *answer = &sim->answers[i];

		if (answer->nr != nr || (answer->code != -1 && answer->code != code) ||
		    !take(answer->counted, &answer->left))
			continue;
		status = answer->status;
		break;
	}
	spin_unlock(&sim->lock);
	return status;
}
EXPORT_SYMBOL_GPL(sim_status);

void sim_hold(struct sim *sim, unsigned int ms)
{
	int releases = atomic_read(&sim->releases);

	if (ms) {
		msleep(ms);
		return;
	}
	wait_event(sim->hung, atomic_read(&sim->releases) != releases || READ_ONCE(sim->closing));
}
EXPORT_SYMBOL_GPL(sim_hold);

static void release(struct sim *sim)
{
	spin_lock(&sim->lock);
	atomic_inc(&sim->releases);
	spin_unlock(&sim->lock);
	wake_up_all(&sim->hung);
}

static int word(const char *const *words, int count, const char *text)
{
	int i;

	for (i = 0; i < count; i++)
		if (!strcmp(words[i], text))
			return i;
	return -1;
}

/* ACT KIND MINOR NR [MS] [RET] [COUNT], with MS for sleep and spin, RET for those and fail */
static int add_rule(struct sim *sim, const char *line)
{
	struct sim_rule rule = { 0 };
	char act[8], kind[8];
	int at, err = 0, n = -1, what;

	if (sscanf(line, "%7s %7s %li %li%n", act, kind, &rule.minor, &rule.nr, &at) != 4)
		return -EINVAL;
	what = word(acts, ARRAY_SIZE(acts), act);
	rule.kind = word(kinds, SIM_KINDS, kind);
	if (what <= SIM_NONE || (int)rule.kind < 0)
		return -EINVAL;
	rule.act = what;
	line += at;
	switch (rule.act) {
	case SIM_SLEEP:
	case SIM_SPIN:
		n = sscanf(line, " %u %i %u", &rule.ms, &rule.ret, &rule.left);
		rule.counted = n == 3;
		n -= 2;
		break;
	case SIM_FAIL:
		n = sscanf(line, " %i %u", &rule.ret, &rule.left);
		rule.counted = n == 2;
		n -= 1;
		break;
	default:
		n = sscanf(line, " %u", &rule.left);
		rule.counted = n == 1;
		n = 0;
	}
	if (n < 0)
		return -EINVAL;
	spin_lock(&sim->lock);
	if (sim->rule_count == SIM_RULES) {
		err = -ENOSPC;
	} else {
		sim->rules[sim->rule_count] = rule;
		WRITE_ONCE(sim->rule_count, sim->rule_count + 1);
	}
	spin_unlock(&sim->lock);
	return err;
}

/* status NR CODE STATUS [COUNT] */
static int add_answer(struct sim *sim, const char *line)
{
	struct sim_answer answer = { 0 };
	int err = 0;
	int n = sscanf(line, "status %li %li %i %u", &answer.nr, &answer.code, (int *)&answer.status, &answer.left);

	if (n < 3)
		return -EINVAL;
	answer.counted = n == 4;
	spin_lock(&sim->lock);
	if (sim->answer_count == SIM_RULES)
		err = -ENOSPC;
	else
		sim->answers[sim->answer_count++] = answer;
	spin_unlock(&sim->lock);
	return err;
}

static int command(struct sim *sim, char *line)
{
	int err = add_rule(sim, line);

	if (err != -EINVAL)
		return err;
	if (!strncmp(line, "status ", 7))
		return add_answer(sim, line);
	if (!strcmp(line, "release") || !strcmp(line, "clear")) {
		if (line[0] == 'c') {
			spin_lock(&sim->lock);
			WRITE_ONCE(sim->rule_count, 0);
			sim->answer_count = 0;
			spin_unlock(&sim->lock);
		}
		release(sim);
		return 0;
	}
	if (!strncmp(line, "log ", 4) && line[4] >= '0' && line[4] <= '7' && line[5] == ' ') {
		/* what KERN_ERR and its like consist of */
		printk("\001%c%s\n", line[4], line + 6);
		return 0;
	}
	return sim->command(line);
}

static ssize_t control_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	char *text;
	int err;

	if (len > 1024)
		return -E2BIG;
	text = memdup_user_nul(from, len);
	if (IS_ERR(text))
		return PTR_ERR(text);
	err = command(pde_data(file_inode(file)), strim(text));
	kfree(text);
	return err ? err : len;
}

static int control_show(struct seq_file *m, void *v)
{
	struct sim *sim = m->private;
	int i;

	for (i = 0; i < SIM_KINDS; i++) {
		/* ended first: a call that ends in between must not make a negative number of calls in flight */
		long long ended = atomic64_read(&sim->ended[i]);
		long long begun = atomic64_read(&sim->begun[i]);

		seq_printf(m, "%s begun %lld ended %lld in_flight %lld\n", kinds[i], begun, ended, begun - ended);
	}
	seq_printf(m, "hanging %d\n", atomic_read(&sim->hanging));
	if (sim->show)
		sim->show(m);
	spin_lock(&sim->lock);
	for (i = 0; i < sim->rule_count; i++) {
		struct sim_rule *rule = &sim->rules[i];

		seq_printf(m, "rule %s %s minor %ld nr %ld ms %u ret %d left %lld\n", acts[rule->act],
			   kinds[rule->kind], rule->minor, rule->nr, rule->ms, rule->ret,
			   rule->counted ? (long long)rule->left : -1);
	}
	for (i = 0; i < sim->answer_count; i++) {
		struct sim_answer *answer = &sim->answers[i];

		seq_printf(m, "status nr %ld code %ld status %#x left %lld\n", answer->nr, answer->code,
			   answer->status, answer->counted ? (long long)answer->left : -1);
	}
	spin_unlock(&sim->lock);
	return 0;
}

static int control_open(struct inode *inode, struct file *file)
{
	return single_open(file, control_show, pde_data(inode));
}

static const struct proc_ops control_ops = {
	.proc_open = control_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
	.proc_write = control_write,
};

int sim_begin(struct sim *sim)
{
	spin_lock_init(&sim->lock);
	init_waitqueue_head(&sim->hung);
	sim->file = proc_create_data(sim->control, 0600, NULL, &control_ops, sim);
	return sim->file ? 0 : -ENOMEM;
}
EXPORT_SYMBOL_GPL(sim_begin);

void sim_end(struct sim *sim)
{
	/* the file's removal waits for commands, and those that hold a lock wait for a "release" */
	WRITE_ONCE(sim->closing, true);
	release(sim);
	proc_remove(sim->file);
}
EXPORT_SYMBOL_GPL(sim_end);

struct kthread_worker *sim_worker(const char *name)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
	return kthread_run_worker(0, "%s", name);
#else
	return kthread_create_worker(0, "%s", name);
#endif
}
EXPORT_SYMBOL_GPL(sim_worker);

static void put(struct sim_job *job)
{
	if (atomic_dec_and_test(&job->users))
		kfree(job);
}

static void work(struct kthread_work *work)
{
	struct sim_job *job = container_of(work, struct sim_job, work);

	job->what(job);
	put(job);
}

int sim_run(struct kthread_worker *worker, void (*what)(struct sim_job *job), int mode, unsigned int ms)
{
	struct sim_job *job = kzalloc(sizeof(*job), GFP_KERNEL);

	if (!job)
		return -ENOMEM;
	kthread_init_work(&job->work, work);
	init_completion(&job->begun);
	atomic_set(&job->users, 2);
	job->what = what;
	job->mode = mode;
	job->ms = ms;
	kthread_queue_work(worker, &job->work);
	wait_for_completion(&job->begun);
	put(job);
	return 0;
}
EXPORT_SYMBOL_GPL(sim_run);

void sim_job_begun(struct sim_job *job)
{
	complete(&job->begun);
}
EXPORT_SYMBOL_GPL(sim_job_begun);
