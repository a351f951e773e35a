/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What both modules of the test double share: rules that say how a call behaves, counts of calls, the control file.
 *
 * Our own code. It has only those names in common with the vendor's driver that user space and tracers see: symbols,
 * majors, paths under /proc, texts of the kernel log. README.md lists the commands of the control files.
 */
#ifndef SIM_H
#define SIM_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/version.h>
#include <linux/wait.h>

/* The driver's own name for its status type. */
typedef u32 NV_STATUS;

#define NV_OK 0x00
#define NV_ERR_INVALID_ARGUMENT 0x1f
#define NV_ERR_INVALID_REQUEST 0x3f
#define NV_ERR_TIMEOUT_RETRY 0x66

/* Kinds of calls, each with rules and counts of its own. */
enum sim_kind {
	SIM_IOCTL,
	SIM_OPEN,
	SIM_CLOSE,
	SIM_MMAP,
	SIM_POLL,
	SIM_FAULT,
	SIM_RM,		/* inside rm_ioctl, with RM's locks held */
	SIM_INIT,	/* inside rm_init_adapter */
	SIM_API,	/* inside a uvm_api_* function */
	SIM_SERVICE,
	SIM_EVICT,
	SIM_KINDS
};

enum sim_act { SIM_NONE, SIM_SLEEP, SIM_SPIN, SIM_HANG, SIM_HANGK, SIM_FAIL };

/* What calls of a kind, minor and number do. */
struct sim_rule {
	enum sim_act act;
	enum sim_kind kind;
	long minor;		/* -1: any */
	long nr;		/* -1: any */
	unsigned int ms;
	int ret;
	unsigned int left;	/* how often it still applies, if counted */
	bool counted;
};

/* A status that RM or UVM answers with. */
struct sim_answer {
	long nr;
	long code;		/* -1: any */
	u32 status;
	unsigned int left;
	bool counted;
};

#define SIM_RULES 32

/* One module's state. */
struct sim {
	const char *control;				/* the control file, below /proc */
	int (*command)(char *line);			/* commands of this module alone; -EINVAL: unknown */
	void (*show)(struct seq_file *m);		/* what it adds to the control file; may be NULL */
	struct proc_dir_entry *file;
	spinlock_t lock;
	struct sim_rule rules[SIM_RULES];
	int rule_count;
	struct sim_answer answers[SIM_RULES];
	int answer_count;
	wait_queue_head_t hung;
	atomic_t releases;
	atomic_t hanging;
	bool closing;
	atomic64_t begun[SIM_KINDS];
	atomic64_t ended[SIM_KINDS];
};

/* Makes the control file; the last thing of a module's init, since commands use the rest. */
int sim_begin(struct sim *sim);
/* Removes it, once no command runs, and lets everything go that hangs. */
void sim_end(struct sim *sim);

/* Counts the call's begin; returns what the first rule for it says (0 if none), after having behaved so. */
int sim_enter(struct sim *sim, enum sim_kind kind, long minor, long nr);
/* Counts its end. */
void sim_leave(struct sim *sim, enum sim_kind kind);
/* The status to answer with. */
u32 sim_status(struct sim *sim, long nr, long code);

/* Sleeps, unkillable; 0 ms: until "release". */
void sim_hold(struct sim *sim, unsigned int ms);

/* Work for a kernel thread of the driver's. */
struct sim_job {
	struct kthread_work work;
	struct completion begun;
	atomic_t users;		/* who asked for it, and the thread */
	void (*what)(struct sim_job *job);
	unsigned int ms;
	int mode;
};

struct kthread_worker *sim_worker(const char *name);
/* Runs `what` on the thread; returns when it has called sim_job_begun(). */
int sim_run(struct kthread_worker *worker, void (*what)(struct sim_job *job), int mode, unsigned int ms);
void sim_job_begun(struct sim_job *job);

#endif
