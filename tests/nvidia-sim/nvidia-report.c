// SPDX-License-Identifier: GPL-2.0
/*
 * XIDs: the line in the kernel log, then nv_report_error, then the tracepoint, as in the driver.
 *
 * In: "xid 0000:3b:00 79 TEXT", or "xid_unlogged …", for a driver whose printing is switched off. The address names
 * one of the module's GPUs, or any other device, which is made up for the moment.
 */
#include <linux/device.h>

#include "nvidia.h"

#if SIM_BRANCH >= 575
#define CREATE_TRACE_POINTS
#include "nvidia-trace.h"
#endif

noinline void nv_report_error(struct pci_dev *dev, u32 error_number, const char *format, va_list ap)
{
	char *text = kvasprintf(GFP_ATOMIC, format, ap);

#if SIM_BRANCH >= 575
	if (text)
		trace_nvidia_dev_xid(dev, error_number, text);
#endif
	kfree(text);
}

static __printf(3, 4) void report(struct pci_dev *dev, u32 error_number, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	nv_report_error(dev, error_number, format, ap);
	va_end(ap);
}

struct pci_dev *nv_pci_new(const char *name)
{
	struct pci_dev *pci = kzalloc(sizeof(*pci), GFP_KERNEL);

	/* never registered: nothing but its name is looked at */
	if (pci && dev_set_name(&pci->dev, "%s", name)) {
		kfree(pci);
		return NULL;
	}
	return pci;
}

void nv_pci_free(struct pci_dev *pci)
{
	if (pci)
		kfree_const(pci->dev.kobj.name);
	kfree(pci);
}

int nv_report_command(char *line)
{
	bool logged = !strncmp(line, "xid ", 4);
	struct pci_dev *pci = NULL, *other = NULL;
	char address[16], name[20];
	int at = 0, i;
	u32 code;

	if (!logged && strncmp(line, "xid_unlogged ", 13))
		return -EINVAL;
	if (sscanf(strchr(line, ' '), " %15s %u %n", address, &code, &at) != 2 || !at)
		return -EINVAL;
	line = strchr(line, ' ') + at;
	/* the driver's line has no function digit, its device's name has */
	snprintf(name, sizeof(name), "%s.0", address);
	for (i = 0; i < gpus; i++)
		if (!strcmp(pci_name(nv_states[i].pci), name))
			pci = nv_states[i].pci;
	if (!pci)
		pci = other = nv_pci_new(name);
	if (!pci)
		return -ENOMEM;
	if (logged)
		printk(KERN_WARNING "NVRM: Xid (PCI:%s): %u, %s\n", address, code, line);
	report(pci, code, "%s", line);
	nv_pci_free(other);
	return 0;
}
