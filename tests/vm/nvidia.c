// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Stand-in for the vendor's GPU driver: holds display functions of NVIDIA's, and nothing else.
 * It makes "the device is in use by nvidia" a real state of the kernel: a driver link, a module
 * that autoloads by alias, and a device that unbinds and binds again.
 */
#include <linux/module.h>
#include <linux/pci.h>

static int standin_probe(struct pci_dev *device, const struct pci_device_id *id)
{
	pci_info(device, "held by the stand-in driver\n");
	return pci_enable_device(device);
}

static void standin_remove(struct pci_dev *device)
{
	pci_disable_device(device);
}

static const struct pci_device_id standin_ids[] = {
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_BASE_CLASS_DISPLAY << 16, .class_mask = 0xff0000 },
	{ }
};
MODULE_DEVICE_TABLE(pci, standin_ids);

static struct pci_driver standin_driver = {
	.name = "nvidia",
	.id_table = standin_ids,
	.probe = standin_probe,
	.remove = standin_remove,
};
module_pci_driver(standin_driver);

MODULE_DESCRIPTION("Stand-in for tests");
MODULE_LICENSE("GPL");
