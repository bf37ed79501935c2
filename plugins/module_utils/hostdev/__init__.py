"""The runtime of vfio.passthrough: one PCI device through kernel, Kubernetes and guest."""

__version__ = "1.0.0"
