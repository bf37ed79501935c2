"""Place 1, the host kernel: readers, IOMMU verdict, safety, binding, boot arguments."""
